"""Names so common, or so typical of a standard library, that a package's definition does not identify their meaning."""

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
