"""Tables of names: the lines that define one, by language, and the words that identify no definition of a package."""

from __future__ import annotations

_BRACED = r"(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?"
_TS_MODIFIERS = r"(?:(?:public|private|protected|static|readonly|abstract|override|async|declare|get|set)\s+)*"
_RUST = r"(?:pub(?:\([^)]*\))?\s+)?(?:(?:default|async|const|unsafe|extern)\s+)*"
_JAVA = r"(?:(?:public|private|protected|static|final|abstract|synchronized|default|native|sealed|@\w+)\s+)*"
_TYPED = r"(?:[\w:<>,&*\[\]?.~]+\s+)+[&*]*"

# (a line that opens a container of members, a definition outside of one, members inside of one)
RULES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "python": (
        r"class\s+\w+",
        (r"^(?:async\s+)?def\s+(\w+)", r"^class\s+(\w+)", r"^(\w+)\s*(?::[^=]+)?=(?!=)", r"^type\s+(\w+)\b"),
        (r"(?:async\s+)?def\s+(\w+)", r"class\s+(\w+)", r"(\w+)\s*(?::|=(?!=))"),
    ),
    "typescript": (
        rf"{_BRACED}(?:class\b|interface\b|enum\b|type\s+\w+.*=\s*\{{|const\s+\w+\s*(?::[^=]+)?=\s*\{{)",
        (rf"^{_BRACED}(?:function\*?|class|interface|type|enum|const|let|var|namespace)\s+([\w$]+)",),
        (rf"{_TS_MODIFIERS}[#*]?([\w$]+)[?!]?\s*(?:[:=(<;,]|$)",),
    ),
    "rust": (
        rf"{_RUST}(?:struct|enum|trait|union|impl)\b.*\{{\s*$",
        (rf"^{_RUST}(?:fn|struct|enum|trait|type|const|static|union|mod)\s+(\w+)", r"^macro_rules!\s*(\w+)"),
        (rf"{_RUST}(?:fn|type|const)\s+(\w+)", r"(?:pub(?:\([^)]*\))?\s+)?(\w+):\s", r"([A-Z]\w*)\s*(?:[({{,]|=|$)"),
    ),
    "go": (
        r"type\s+\w+.*(?:struct|interface)\s*\{\s*$",
        (r"^func\s+(\w+)", r"^(?:type|var|const)\s+(\w+)"),
        (r"(\w+)\s*\(", r"(\w+(?:,\s*\w+)*)\s+\S"),
    ),
    "c": (
        r"(?:typedef\s+)?(?:struct|union)\b.*\{\s*$",
        (
            r"^#\s*define\s+(\w+)",
            r"^(?!return\b|else\b|if\b|for\b|while\b|switch\b|typedef\b)(?:[A-Za-z_][\w*]*[\s*]+)*(\w+)\s*\(",
            r"^(?:typedef\s+)?(?:struct|enum|union)\s+(\w+)",
            r"^\}\s*(\w+)\s*;",
            r"^(?:static|extern|const)\b[\w\s*]*?(\w+)\s*(?:\[.*)?(?:=|;)",
        ),
        (r"[\w\s*]+[\s*](\w+)\s*(?:\[[^\]]*\])?;", r"[\w\s*]+\(\*(\w+)\)\("),
    ),
    "cpp": (
        r"(?:template\s*<.*>\s*)?(?:class|struct|union)\s+[\w:]+[^;]*\{?\s*$",
        (
            r"^#\s*define\s+(\w+)",
            r"^(?:class|struct|union|enum(?:\s+class|\s+struct)?)\s+(\w+)",
            r"^(?:using)\s+(\w+)\s*=",
            rf"^{_TYPED}(\w+)\s*\(",
            rf"^{_TYPED}\w+::~?(\w+)\s*\(",
        ),
        (rf"{_TYPED}(\w+)\s*\(", rf"{_TYPED}(\w+)\s*(?:=(?!=).*|\{{.*\}})?;", r"([A-Z]\w*)\s*(?:=.*)?,?$"),
    ),
    "java": (
        rf"{_JAVA}(?:class|interface|enum|record)\s+\w+",
        (rf"^{_JAVA}(?:class|interface|enum|record)\s+(\w+)",),
        (
            rf"{_JAVA}[\w<>\[\],.? ]+\s+(\w+)\s*\(",
            rf"{_JAVA}[\w<>\[\],.? ]+\s+(\w+)\s*(?:=.*)?;",
            rf"{_JAVA}(?:class|interface|enum|record)\s+(\w+)",
            r"([A-Z][A-Z_0-9]+)\s*[(,;]",
        ),
    ),
}
_STATEMENTS = """
    if for while switch catch return else do try with match await yield new case default import export
"""
NOT_NAMES = frozenset(_STATEMENTS.split())

# so common, or so typical of a standard library, that a package's definition does not identify their meaning
_WORDS = """
    append extend insert remove clear count index sort reverse copy items keys values update setdefault popitem join
    split rsplit strip lstrip rstrip startswith endswith replace lower upper title encode decode format find rfind
    read write close open seek tell flush readline readlines name names path paths type types kind data text value
    size length self this super print range list dict tuple bool bytes float object isinstance getattr setattr
    hasattr enumerate sorted reversed zip filter sum push shift unshift slice splice concat includes indexOf forEach
    reduce some every test match then catch finally resolve reject from into iter next clone unwrap expect push_str
    to_string as_str as_ref is_some is_none is_empty is_ok is_err collect contains entry unwrap_or ok_or map_err
    begin front back emplace_back push_back c_str string String Error Exception Map Array Object Promise None True
    False null undefined true false Some Option Result Vec static const async await return yield lambda import
    export class function default main init start stop run call apply bind toString valueOf constructor prototype
    message status state info warn error debug trace code body args kwargs param params options option config result
    results input output event events create delete post patch head send recv recieve receive wait done cancel load
    save dump dumps loads parse stringify exists mkdir parent suffix stem exit reset build Default clone_from equals
    hashCode nullptr sizeof nil make cap panic json model_dump group groups search sub exec keys_mut stdin stdout
    stderr request response url method id description version metadata content context timeout callback handler
    logger level label tags time date first last left right root node children tail token tokens source target user
    users role roles success failure parts pipe childNodes parentNode firstChild lastChild nextSibling
    previousSibling appendChild removeChild insertBefore textContent innerHTML addEventListener removeEventListener
    dispatchEvent getAttribute setAttribute removeAttribute ownerDocument nodeName nodeType nodeValue tagName
    classList statusCode statusText statusMessage setTimeout clearTimeout setInterval clearInterval queueMicrotask
    writeHead setHeader getHeader rawHeaders getMessage getName getClass getValue getKey getType getBytes isEmpty
    expressions capabilities arguments stderr_text returncode is_file is_dir read_text write_text read_bytes
    write_bytes to_file_path model_validate model_copy model_fields prerendering hasOwnProperty isArray
    defineProperty
"""
ORDINARY = frozenset(_WORDS.split())
