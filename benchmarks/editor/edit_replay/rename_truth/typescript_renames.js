// Definitions and their rename locations by the TypeScript compiler, of files that stand alone.
//
//   node typescript_renames.js TYPESCRIPT.JS < {"path": "text", ...} > {"path": [definition, ...], ...}
//
// A definition: {kind, name, start, uses: [{start, prefix, suffix}], documented: [start], others: [start]}.
// Offsets are UTF-16. A file's imports are not resolved; a field is left out where a receiver's type is unknown.
"use strict";
const fs = require("fs");
const ts = require(process.argv[2]);
const files = JSON.parse(fs.readFileSync(0, "utf8"));
const MAX_OF_A_KIND = 12;

function serviceOf(path, text) {
  const host = {
    getCompilationSettings: () => ({ noLib: true, noResolve: true, allowJs: true, target: 99, jsx: 1, types: [] }),
    getScriptFileNames: () => [path],
    getScriptVersion: () => "1",
    getScriptSnapshot: (name) => (name === path ? ts.ScriptSnapshot.fromString(text) : undefined),
    getCurrentDirectory: () => "/",
    getDefaultLibFileName: () => "/none.d.ts",
    fileExists: (name) => name === path,
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
  if (ts.isPropertyAccessExpression(node) && node.name === name && node.expression.kind === ts.SyntaxKind.ThisKeyword &&
      ts.isBinaryExpression(node.parent) && node.parent.left === node && ts.isInJSFile(node) &&
      node.parent.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
    let at = node.parent;
    while (at && !ts.isFunctionLike(at)) at = at.parent;
    return at && ts.isConstructorDeclaration(at) ? "field" : "";
  }
  return "";
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
  if (!isFirst && kind !== "function" && kind !== "class" && kind !== "field") return null;
  const starts = new Set(locations.map((at) => at.textSpan.start));
  const rest = nodes.filter((other) => !starts.has(other.getStart(source)));
  const isOfUnknown = (at) => ts.isPropertyAccessExpression(at.parent) && at.parent.name === at &&
    at.parent.expression.kind !== ts.SyntaxKind.ThisKeyword;
  if (kind === "field" && rest.some(isOfUnknown)) return null;
  return {
    kind, name: node.text, start,
    uses: locations.filter(isCode).map((at) => ({ start: at.textSpan.start, prefix: at.prefixText || "", suffix: suffixOf(at) })),
    documented: locations.filter((at) => !isCode(at)).map((at) => at.textSpan.start),
    others: rest.filter(isDeclared).map((at) => at.getStart(source)),
  };
}

const answer = {};
for (const [path, text] of Object.entries(files)) answer[path] = definitionsOf(path, text);
fs.writeSync(1, JSON.stringify(answer));
