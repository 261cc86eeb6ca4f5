"""Outlines of files in each indexed language: names, kinds, owners, signatures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.index import import_statements
from speclsp.lsp.index.outline import Outline, Symbol, outline
from speclsp.lsp.syntax.grammars import SUFFIXES
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.parser import SyntaxParser

PYTHON = '''\
from . import store
from ..x.y import (Foo,  # of old
    bar as baz)
import os, numpy as np
LIMIT = 4
class A(Base):
    """Doc of A.

    More."""
    size: int = 3
    def __init__(self, a: int = 3, *, b: str | None = None) -> None:
        self.a = a
        if b:
            self.hidden = b
    @property
    def foo(self):
        def local(): pass
        return 3
    class Inner:
        def m(self): ...
async def f(a,
            b=1):
    """Runs."""
    x = 1
    return x
'''
TYPESCRIPT = """\
import def, { A, b as c } from "./x.js";
import * as ns from '../y';
export * from './z';
/** Doc of K.
 * more */
export abstract class K<T> extends B {
  private size: number = 3;
  constructor(private readonly by: string) { super(); }
  async run(a: number, b?: string): Promise<void> { const q = () => 3; }
  abstract go(): void;
}
export interface I { a: string; f(x: number): void }
export type U = "a" | "b";
type Shape = { side: number };
enum E { P, Q = 3 }
export const fn = async (a: number): Promise<string> => { return ""; };
export const LIMIT = 3;
export default function main(a: string): number { return 1; }
"""
JAVASCRIPT = """\
const { a, b: c } = require("./x");
function foo(a, b = 3) { function local() {} return 1 }
class Q { #p = 1; constructor() { this.q = 2; } }
module.exports.helper = function (x) { return x };
exports.y = (a) => a + 1;
"""
RUST = """\
use crate::store::{Store, inner::{A, B as C}};
mod sub;
/// A thing.
#[derive(Debug)]
pub struct Thing<T> {
    pub a: i32,
}
pub enum En { P, Q(i32) }
pub trait Tr { fn req(&self) -> i32; }
impl<T> Tr for Thing<T> { fn new(a: i32) -> Self { fn local() {} todo!() } }
pub fn free<'a>(x: &'a str) -> &'a str where { x }
const MAX: usize = 4;
macro_rules! mm { () => {} }
"""
GO = """\
package p
import (
  "fmt"
  st "example.com/m/store"
)
// T is a thing.
type T struct { A int }
type I interface { Do(x int) error }
type F func(int) error
// Run runs.
func (t *T) Run(ctx context.Context, n int) (int, error) { x := 1; return x, nil }
func New[K any](a K) *T { return nil }
const Max = 3
var Err = fmt.Errorf("x")
"""
C = """\
#include "a/b.h"
#define MAX 10
/* adds */
static int *add(int a, const char *b) { int c; return 0; }
char *other(void);
struct S { int a; int (*cb)(int); };
typedef struct { int q; } Tq;
enum E { P, Q = 2 };
int total = 3;
"""
CPP = """\
#include "x.hpp"
namespace ns {
template <class T> class A : public B { A(int a); int f(int a) const; int x = 3; };
int A<int>::f(int a) const { return 1; }
using V = std::vector<int>;
}
"""
JAVA = """\
package a.b;
import a.c.D;
import a.d.*;
/** Doc. */
public class A<T> extends B {
  private final int x = 3;
  @Override
  public <U> List<U> run(Map<String, U> m) throws E { int y; return null; }
  enum K { P }
}
interface I { void f(int a); }
record R(int a) { }
"""
KOTLIN = """\
package a.b
import a.c.D
import a.d.*
import a.e.F as G
/** Doc. */
data class K<T>(val size: Int, other: Int) : B(), I {
    private val x: Int = 3
    companion object {
        const val MAX = 3
    }
    override suspend fun run(a: Int, b: String = "x"): Int {
        val local = 3
        return local
    }
}
interface I {
    fun f(x: Int): Int
}
enum class E {
    P;
    fun g() = 1
}
object O
typealias U = List<Int>
fun String.free(x: Int): Int = x
const val LIMIT = 3
"""
SWIFT = """\
import Foundation
import struct Foundation.Date
/// Doc.
public final class K<T>: B, P {
    private let size: Int = 3
    var other: Int { return 4 }
    init(a: Int) { self.size = a }
    func run(_ a: Int, b: String = "x") async throws -> Int { let local = 3; return local }
}
protocol P { var v: Int { get }; func f(x: Int) -> Int }
enum E: Int { case p = 1 }
extension K { func h() { print("a") } }
typealias U = [Int]
func free(x: Int) -> Int { x }
let limit = 3
"""
SCALA = """\
package a.b
import a.c.D
import a.d._
import a.e.{F, G => H}
/** Doc. */
case class K[T](size: Int, other: Int) extends B with I {
  private val x: Int = 3
  def run(a: Int, b: String = "x"): Int = { val local = 3; local }
  def abs: Int
}
trait I { def f(x: Int): Int }
object O { def h() = s"a $b" }
enum E { case P }
type U = List[Int]
val LIMIT = 3
def free(x: Int): Int = x
"""
SOURCES = {
    "python": (
        PYTHON,
        """constant LIMIT · LIMIT = 4
        class A · class A(Base)
        field A.size · size: int = 3
        method A.__init__ · def __init__(self, a: int = 3, *, b: str | None = None) -> None
        field A.a · self.a = a
        property A.foo · def foo(self)
        class A.Inner · class Inner
        method A.Inner.m · def m(self)
        function f · async def f(a, b=1)""",
        [(".", "store"), ("..x.y", "Foo"), ("..x.y", "bar as baz"), ("os", ""), ("numpy", "")],
    ),
    "typescript": (
        TYPESCRIPT,
        """class K · abstract class K<T> extends B
        field K.size · private size: number = 3
        method K.constructor · constructor(private readonly by: string)
        field K.by · private readonly by: string
        method K.run · async run(a: number, b?: string): Promise<void>
        method K.go · abstract go(): void
        interface I · interface I
        field I.a · a: string
        method I.f · f(x: number): void
        type U · type U = "a" | "b"
        type Shape · type Shape
        field Shape.side · side: number
        enum E · enum E
        member E.P · P
        member E.Q · Q = 3
        function fn · export const fn = async (a: number): Promise<string>
        constant LIMIT · export const LIMIT = 3
        function main · function main(a: string): number""",
        [("./x.js", "default as def"), ("./x.js", "A"), ("./x.js", "b as c"), ("../y", ""), ("./z", "*")],
    ),
    "javascript": (
        JAVASCRIPT,
        """function foo · function foo(a, b = 3)
        class Q · class Q
        field Q.#p · #p = 1
        method Q.constructor · constructor()
        field Q.q · this.q = 2
        function helper · module.exports.helper = function (x)
        function y · exports.y = (a)""",
        [("./x", "a"), ("./x", "b as c")],
    ),
    "rust": (
        RUST,
        """class Thing · pub struct Thing<T>
        field Thing.a · pub a: i32
        enum En · pub enum En
        member En.P · P
        member En.Q · Q(i32)
        interface Tr · pub trait Tr
        method Tr.req · fn req(&self) -> i32
        method Thing.new · fn new(a: i32) -> Self
        function free · pub fn free<'a>(x: &'a str) -> &'a str
        constant MAX · const MAX: usize = 4
        macro mm · macro_rules! mm { () => {} }""",
        [
            *[("crate::store", "Store"), ("crate::store::inner", "A"), ("crate::store::inner", "B as C")],
            ("self::sub", ""),
        ],
    ),
    "go": (
        GO,
        """class T · type T struct
        field T.A · A int
        interface I · type I interface { Do(x int) error }
        method I.Do · Do(x int) error
        type F · type F func(int) error
        method T.Run · func (t *T) Run(ctx context.Context, n int) (int, error)
        function New · func New[K any](a K) *T
        constant Max · const Max = 3
        variable Err · var Err = fmt.Errorf("x")""",
        [("fmt", ""), ("example.com/m/store", "")],
    ),
    "c": (
        C,
        """macro MAX · #define MAX 10
        function add · static int *add(int a, const char *b)
        function other · char *other(void)
        class S · struct S
        field S.a · int a
        method S.cb · int (*cb)(int)
        class Tq · typedef struct
        field Tq.q · int q
        enum E · enum E
        member E.P · P
        member E.Q · Q = 2
        variable total · int total = 3""",
        [("a/b.h", "")],
    ),
    "cpp": (
        CPP,
        """module ns · namespace ns
        class ns.A · class A : public B
        method ns.A.A · A(int a)
        method ns.A.f · int f(int a) const
        field ns.A.x · int x = 3
        method A.f · int A<int>::f(int a) const
        type ns.V · using V = std::vector<int>""",
        [("x.hpp", "")],
    ),
    "java": (
        JAVA,
        """class A · public class A<T> extends B
        field A.x · private final int x = 3
        method A.run · public <U> List<U> run(Map<String, U> m) throws E
        enum A.K · enum K
        member A.K.P · P
        interface I · interface I
        method I.f · void f(int a)
        class R · record R(int a)""",
        [("a.c", "D"), ("a.d", "*")],
    ),
    "kotlin": (
        KOTLIN,
        """class K · data class K<T>(val size: Int, other: Int) : B(), I
        field K.size · val size: Int
        field K.x · private val x: Int = 3
        field K.MAX · const val MAX = 3
        method K.run · override suspend fun run(a: Int, b: String = "x"): Int
        interface I · interface I
        method I.f · fun f(x: Int): Int
        enum E · enum class E
        member E.P · P
        method E.g · fun g()
        class O · object O
        type U · typealias U = List<Int>
        function free · fun String.free(x: Int): Int
        constant LIMIT · const val LIMIT = 3""",
        [("a.c", "D"), ("a.d", "*"), ("a.e", "F as G")],
    ),
    "swift": (
        SWIFT,
        """class K · public final class K<T>: B, P
        field K.size · private let size: Int = 3
        field K.other · var other: Int
        method K.init · init(a: Int)
        method K.run · func run(_ a: Int, b: String = "x") async throws -> Int
        interface P · protocol P
        field P.v · var v: Int { get }
        method P.f · func f(x: Int) -> Int
        enum E · enum E: Int
        member E.p · case p = 1
        method K.h · func h()
        type U · typealias U = [Int]
        function free · func free(x: Int) -> Int
        variable limit · let limit = 3""",
        [("Foundation", ""), ("Foundation", "Date")],
    ),
    "scala": (
        SCALA,
        """class K · case class K[T](size: Int, other: Int) extends B with I
        field K.x · private val x: Int = 3
        method K.run · def run(a: Int, b: String = "x"): Int
        method K.abs · def abs: Int
        interface I · trait I
        method I.f · def f(x: Int): Int
        class O · object O
        method O.h · def h()
        enum E · enum E
        member E.P · P
        type U · type U = List[Int]
        constant LIMIT · val LIMIT = 3
        function free · def free(x: Int): Int""",
        [("a.c", "D"), ("a.d", "*"), ("a.e", "F"), ("a.e", "G as H")],
    ),
    "sql": (
        "-- Doc.\nCREATE TABLE s.t (\n  id int NOT NULL,\n  name text\n);\nCREATE VIEW v AS SELECT id FROM t;\n"
        "CREATE TYPE m AS ENUM ('a');\n",
        """class s.t · CREATE TABLE s.t
        field t.id · id int NOT NULL
        field t.name · name text
        class v · CREATE VIEW v AS
        type m · CREATE TYPE m AS ENUM ('a')""",
        [],
    ),
    "c_sharp": (
        "class A { int x = 3; public int P { get; set; } public void M<T>(T a) { int y; } }\n",
        """class A · class A
        field A.x · int x = 3
        field A.P · public int P { get; set; }
        method A.M · public void M<T>(T a)""",
        [],
    ),
    "php": (
        "<?php\nuse A\\B\\C as D;\nclass A { public function f(int $a): int { return 1; } }\nfunction g($b) {}\n",
        """class A · class A
        method A.f · public function f(int $a): int
        function g · function g($b)""",
        [("A\\B", "C as D")],
    ),
    "ruby": (
        "module M\n  X = 1\n  # Doc.\n  class A < B\n    def f(a, b: 1)\n      1\n    end\n  end\nend\n",
        """module M · module M
        constant M.X · X = 1
        class M.A · class A < B
        method M.A.f · def f(a, b: 1)""",
        [],
    ),
    "lua": (
        "function M.f(a, b) return 1 end\nlocal t = 3\n",
        "method M.f · function M.f(a, b)\nvariable t · local t = 3",
        [],
    ),
    "bash": ("# Doc.\nfoo() { echo; }\n", "function foo · foo()", []),
}
SOURCES["tsx"] = (TYPESCRIPT, SOURCES["typescript"][1], SOURCES["typescript"][2])


def of(grammar: str, text: str) -> Outline:
    tree = SyntaxParser().parse_once(grammar, text, 5000)
    assert tree is not None
    return outline(tree, "file")


def line(symbol: Symbol) -> str:
    name = f"{symbol.container}.{symbol.name}" if symbol.container else symbol.name
    return f"{symbol.kind} {name} · {symbol.signature}"


def names_of(made: Import) -> list[tuple[str, str]]:
    names = [original if original == alias else f"{original} as {alias}" for original, alias in made.names]
    return [(made.module, name) for name in names or [""]]


@pytest.mark.parametrize("grammar", SOURCES)
def test_an_outline_lists_the_public_definitions_of_a_file_with_their_signatures(grammar: str):
    text, expected, imports = SOURCES[grammar]
    result = of(grammar, text)
    assert [line(symbol) for symbol in result.symbols] == [row.strip() for row in expected.split("\n")]
    assert [pair for statement in result.imports for pair in names_of(statement)] == imports


def test_every_indexed_language_has_an_example():
    assert set(SUFFIXES.values()) == set(SOURCES)


@pytest.mark.parametrize("grammar", SOURCES)
def test_the_lines_of_a_symbol_contain_its_name(grammar: str):
    text = SOURCES[grammar][0]
    lines = text.split("\n")
    for symbol in of(grammar, text).symbols:
        assert symbol.name in "\n".join(lines[symbol.line :])


@given(st.sampled_from(sorted(SOURCES)), st.text(max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_the_outline_of_unfinished_code_is_a_bounded_list_of_lines(
    grammar: str, written: str, start: float, end: float
):
    text = SOURCES[grammar][0]
    low, high = sorted((int(start * len(text)), int(end * len(text))))
    tree = SyntaxParser().parse_once(grammar, text[:low] + written + text[high:], 5000)
    if tree is None:
        return  # binary
    for symbol in outline(tree, "file").symbols:
        assert symbol.name and "\n" not in symbol.signature
        assert len(symbol.signature) <= 260


def test_a_tree_parsed_once_does_not_depend_on_the_previous_one():
    parser = SyntaxParser()
    before = parser.parse_once("python", "def f(:\n    x = (1\n", 5000)
    tree = parser.parse_once("python", PYTHON, 5000)
    assert before is not None and tree is not None
    assert outline(tree, "file") == of("python", PYTHON)


def test_a_javascript_require_is_an_import_of_its_names():
    (statement,) = import_statements.read("javascript", 'const { a, b: c } = require("./x");')
    assert statement == Import("./x", (("a", "a"), ("b", "c")))
    assert import_statements.read("javascript", 'const fs = require("fs")') == [Import("fs")]


def test_a_key_in_a_source_file_is_in_no_signature():
    key = "sk-proj-abcd1234efgh5678ijkl9012mnop3456qrst7890uvwx"
    text = f'''API_KEY = "{key}"\ndef f(a="{key}"):\n    """Takes {key}."""\nclass A:\n    key: str = "{key}"\n'''
    symbols = of("python", text).symbols
    assert [symbol.name for symbol in symbols] == ["API_KEY", "f", "A", "key"]
    assert key not in str(symbols)
