// Definitions and their rename locations by the TypeScript compiler, of files that stand alone.
//
//   node typescript_renames.js TYPESCRIPT.JS < {"path": "text", ...} > {"path": [definition, ...], ...}
//
// A definition: {kind, name, start, uses: [{start, prefix, suffix, bound}], documented: [start], others: [start]}.
// `bound`: of a shorthand in a pattern, the uses of the variable that it binds, which may get the new name too.
// Offsets are UTF-16. A file's imports are not resolved; a field is left out where a receiver's type is unknown. A
// member (of an interface, an object type or a class) is left out where the type of anything with its name is unknown.
"use strict";
const fs = require("fs");
const ts = require(process.argv[2]);
const files = JSON.parse(fs.readFileSync(0, "utf8"));
const MAX_OF_A_KIND = 12;
const LIBRARY = `
interface Array<T> {
  [index: number]: T; length: number; push(...items: T[]): number; pop(): T | undefined; shift(): T | undefined;
  forEach(call: (item: T, index: number) => void): void; map<U>(call: (item: T, index: number) => U): U[];
  filter(call: (item: T, index: number) => unknown): T[]; some(call: (item: T) => unknown): boolean;
  every(call: (item: T) => unknown): boolean; find(call: (item: T) => unknown): T | undefined; at(index: number): T;
  sort(call?: (a: T, b: T) => number): T[]; slice(a?: number, b?: number): T[]; flatMap<U>(call: (item: T) => U[]): U[];
  reduce<U>(call: (sum: U, item: T) => U, first: U): U; concat(...items: T[][]): T[]; findIndex(call: (item: T) => unknown): number;
}
interface ReadonlyArray<T> extends Array<T> {}
interface Promise<T> { then<U>(call: (value: T) => U): Promise<U>; catch(call: (error: any) => any): Promise<T>; }
interface Map<K, V> {
  get(key: K): V | undefined; set(key: K, value: V): this; has(key: K): boolean; delete(key: K): boolean; clear(): void;
  values(): V[]; keys(): K[]; entries(): [K, V][]; forEach(call: (value: V, key: K) => void): void; size: number;
}
interface WeakMap<K, V> { get(key: K): V | undefined; set(key: K, value: V): this; has(key: K): boolean; delete(key: K): boolean; }
interface Set<T> { add(item: T): this; has(item: T): boolean; delete(item: T): boolean; values(): T[]; size: number; }
declare const Map: { new <K, V>(items?: [K, V][]): Map<K, V> }; declare const Set: { new <T>(items?: T[]): Set<T> };
declare const WeakMap: { new <K, V>(): WeakMap<K, V> }; declare const Error: { new (text?: string, more?: any): Error };
interface Error { name: string; message: string; stack?: string; }
declare const Promise: { new <T>(run: (resolve: (value: T) => void, reject: (error: any) => void) => void): Promise<T> };
declare const Array: { from<T>(items: T[]): T[]; isArray(value: any): value is any[] };
declare const Object: { keys(of: object): string[]; values<T>(of: Record<string, T>): T[]; entries<T>(of: Record<string, T>): [string, T][] };
interface Boolean {} interface Number {} interface RegExp {} interface Object {} interface Function {} interface IArguments {}
interface String { length: number; split(by: string): string[]; trim(): string; slice(a: number): string; }
interface CallableFunction {} interface NewableFunction {}
type Partial<T> = { [K in keyof T]?: T[K] }; type Required<T> = { [K in keyof T]-?: T[K] };
type Readonly<T> = { readonly [K in keyof T]: T[K] }; type Pick<T, N extends keyof T> = { [K in N]: T[K] };
type Record<N extends keyof any, T> = { [K in N]: T }; type Exclude<T, U> = T extends U ? never : T;
type Omit<T, N extends keyof any> = Pick<T, Exclude<keyof T, N>>; type NonNullable<T> = T & {};
type ReturnType<F> = F extends (...args: any) => infer R ? R : any;
`;

function serviceOf(path, text) {
  const host = {
    getCompilationSettings: () => ({ noLib: true, noResolve: true, allowJs: true, target: 1, jsx: 1, types: [], strict: true }),
    getScriptFileNames: () => [path, "/lib.d.ts"],
    getScriptVersion: () => "1",
    getScriptSnapshot: (name) => ts.ScriptSnapshot.fromString(name === path ? text : LIBRARY),
    getCurrentDirectory: () => "/",
    getDefaultLibFileName: () => "/none.d.ts",
    fileExists: (name) => name === path || name === "/lib.d.ts",
    readFile: () => undefined,
  };
  return ts.createLanguageService(host);
}

const isFunctionValue = (node) => node && (ts.isArrowFunction(node) || ts.isFunctionExpression(node));
const isTop = (node) => node.parent && ts.isSourceFile(node.parent);

function isInFunction(node) {
  for (let at = node.parent; at; at = at.parent) if (ts.isFunctionLike(at)) return true;
  return false;
}

/** The kind of the definition whose name is this identifier; "" for none. */
function kindOf(name) {
  const node = name.parent;
  if (ts.isParameter(node) && node.name === name && node.parent.body && name.text !== "this")
    return ts.isParameterPropertyDeclaration(node, node.parent) ? "field" : "parameter";
  if (ts.isVariableDeclaration(node) && node.name === name && ts.isVariableDeclarationList(node.parent)) {
    if (isInFunction(node)) return "local";
    return isTop(node.parent.parent) && isFunctionValue(node.initializer) ? "function" : "";
  }
  if (ts.isFunctionDeclaration(node) && node.name === name && isTop(node) && node.body) return "function";
  if ((ts.isClassDeclaration(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) &&
      node.name === name && isTop(node)) return "class";
  if (ts.isImportSpecifier(node) && node.propertyName && node.name === name) return "import alias";
  if ((ts.isNamespaceImport(node) || ts.isImportClause(node)) && node.name === name) return "import alias";
  if (ts.isPropertyDeclaration(node) && node.name === name) return "field";
  if (ts.isPropertySignature(node) && node.name === name) return "member";
  if (ts.isPropertyAccessExpression(node) && node.name === name && node.expression.kind === ts.SyntaxKind.ThisKeyword &&
      ts.isBinaryExpression(node.parent) && node.parent.left === node && ts.isInJSFile(node) &&
      node.parent.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
    let at = node.parent;
    while (at && !ts.isFunctionLike(at)) at = at.parent;
    return at && ts.isConstructorDeclaration(at) ? "field" : "";
  }
  return "";
}

/** True if the compiler knows that this identifier names no member of the type, or names another type's. */
function isOfKnown(checker, at) {
  const node = at.parent;
  const isKnown = (type) => type && !(type.flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown));
  if (ts.isPropertyAccessExpression(node) && node.name === at) return isKnown(checker.getTypeAtLocation(node.expression));
  if (ts.isPropertyAssignment(node) && node.name === at || ts.isShorthandPropertyAssignment(node))
    return isKnown(checker.getContextualType(node.parent));
  if (ts.isBindingElement(node) && (node.propertyName || node.name) === at)
    return !ts.isObjectBindingPattern(node.parent) || isKnown(checker.getTypeAtLocation(node.parent));
  return !ts.isJsxAttribute(node);
}

const isDeclared = (node) =>
  (ts.isVariableDeclaration(node.parent) || ts.isParameter(node.parent) || ts.isBindingElement(node.parent) ||
   ts.isPropertyDeclaration(node.parent)) && node.parent.name === node;

function definitionsOf(path, text) {
  const service = serviceOf(path, text);
  const source = service.getProgram().getSourceFile(path);
  if (source.parseDiagnostics.length) return [];
  const identifiers = new Map();
  (function visit(node) {
    if (ts.isIdentifier(node)) {
      if (!identifiers.has(node.text)) identifiers.set(node.text, []);
      identifiers.get(node.text).push(node);
    }
    ts.forEachChild(node, visit);
  })(source);
  const counts = {}, result = [];
  for (const nodes of identifiers.values())
    for (const node of nodes) {
      const kind = kindOf(node);
      if (!kind || (counts[kind] = (counts[kind] || 0) + 1) > 8 * MAX_OF_A_KIND) continue;
      const definition = definitionOf(service, source, path, node, kind, nodes);
      if (definition) result.push(definition);
    }
  return result;
}

/** `export { name }` becomes `export { new }`: an alias is not what people type. */
const suffixOf = (at) => (at.suffixText && !at.suffixText.startsWith(" as ") ? at.suffixText : "");

function definitionOf(service, source, path, node, kind, nodes) {
  const start = node.getStart(source);
  let locations;
  try {
    locations = service.findRenameLocations(path, start, false, false, { providePrefixAndSuffixTextForRename: true });
  } catch { return null; }
  if (!locations || !locations.length || locations.some((at) => at.textSpan.length !== node.text.length)) return null;
  const codeStarts = new Set(nodes.map((at) => at.getStart(source))); // JSDoc is not among the nodes
  const isCode = (at) => codeStarts.has(at.textSpan.start);
  const own = locations.find((at) => at.textSpan.start === start);
  if (!own || own.prefixText || own.suffixText) return null;
  const isFirst = locations.every((at) => !isCode(at) || at.textSpan.start >= start);
  if (!isFirst && !["function", "class", "field", "member"].includes(kind)) return null;
  const starts = new Set(locations.map((at) => at.textSpan.start));
  const rest = nodes.filter((other) => !starts.has(other.getStart(source)));
  const isOfUnknown = (at) => ts.isPropertyAccessExpression(at.parent) && at.parent.name === at &&
    at.parent.expression.kind !== ts.SyntaxKind.ThisKeyword;
  const checker = service.getProgram().getTypeChecker();
  if (kind === "field" && rest.some(isOfUnknown)) return null;
  if (kind === "member" && rest.some((at) => !isOfKnown(checker, at))) return null;
  const byStart = new Map(nodes.map((at) => [at.getStart(source), at]));
  const boundBy = (at) => {
    const element = byStart.get(at).parent;
    if (kind !== "member" || !ts.isBindingElement(element) || element.propertyName) return [];
    const options = { providePrefixAndSuffixTextForRename: true };
    return service.findRenameLocations(path, at, false, false, options).filter((use) => use.textSpan.start !== at)
      .map((use) => ({ start: use.textSpan.start, prefix: use.prefixText || "", suffix: suffixOf(use) }));
  };
  return {
    kind, name: node.text, start,
    uses: locations.filter(isCode).map((at) => ({
      start: at.textSpan.start, prefix: at.prefixText || "", suffix: suffixOf(at), bound: boundBy(at.textSpan.start),
    })),
    documented: locations.filter((at) => !isCode(at)).map((at) => at.textSpan.start),
    others: rest.filter(isDeclared).map((at) => at.getStart(source)),
  };
}

const answer = {};
for (const [path, text] of Object.entries(files)) answer[path] = definitionsOf(path, text);
fs.writeSync(1, JSON.stringify(answer));
