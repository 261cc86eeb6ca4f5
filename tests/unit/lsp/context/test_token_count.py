"""Token estimate by script: near the tokenizer's count in every script, and a sum of its parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import ContextConfig
from speclsp.lsp.context import build, token_count
from speclsp.lsp.context.chunk import Chunk
from speclsp.lsp.context.selection import PATH_TOKENS, size_tokens
from speclsp.lsp.documents.document import Snapshot

# script -> (tokens by the tokenizer of Qwen2.5-Coder, code with comments and strings in it)
SAMPLES = {
    "Chinese": (
        114,
        r'''# 读取配置文件，如果文件不存在就返回默认值
def load_config(path):
    """解析一个配置文件。

    参数 path 是文件的路径；返回一个字典，键是选项的名称，值是用户设置的内容。
    如果文件的格式不正确，会抛出异常，并说明出错的行号和原因。
    """
    with open(path) as file:  # 用默认的编码打开
        return parse(file.read())  # 去掉注释和空行以后再解析
''',
    ),
    "Traditional Chinese": (
        127,
        r'''# 讀取設定檔，如果檔案不存在就傳回預設值
def load_config(path):
    """解析一個設定檔。

    參數 path 是檔案的路徑；傳回一個字典，鍵是選項的名稱，值是使用者設定的內容。
    如果檔案的格式不正確，會丟出例外，並說明出錯的行號和原因。
    """
    with open(path) as file:  # 用預設的編碼開啟
        return parse(file.read())  # 去掉註解和空行以後再解析
''',
    ),
    "Japanese": (
        138,
        r'''# 設定ファイルを読み込み、存在しない場合は既定値を返します
def load_config(path):
    """設定ファイルを解析する。

    引数 path はファイルのパスです。戻り値は辞書で、キーは項目の名前、値は利用者が指定した内容です。
    形式が正しくないときは、行番号と理由を含む例外を送出します。
    """
    with open(path) as file:  # 既定の文字コードで開く
        return parse(file.read())  # コメントと空行を取り除いてから解析する
''',
    ),
    "Korean": (
        150,
        r'''# 설정 파일을 읽고, 파일이 없으면 기본값을 돌려준다
def load_config(path):
    """설정 파일을 분석한다.

    인자 path는 파일의 경로이다. 반환값은 사전이며, 키는 옵션의 이름이고 값은 사용자가 정한 내용이다.
    파일의 형식이 올바르지 않으면 줄 번호와 이유를 담은 예외를 던진다.
    """
    with open(path) as file:  # 기본 문자 인코딩으로 연다
        return parse(file.read())  # 주석과 빈 줄을 지운 뒤에 분석한다
''',
    ),
    "Russian": (
        144,
        r'''# Читает файл настроек; если файла нет, возвращает значения по умолчанию
def load_config(path):
    """Разбирает файл настроек.

    Параметр path задаёт путь к файлу. Возвращается словарь: ключ является именем, значение задал пользователь.
    Если формат файла неверен, возникает исключение с номером строки и причиной ошибки.
    """
    with open(path) as file:  # открыть в кодировке по умолчанию
        return parse(file.read())  # сначала удалить комментарии и пустые строки
''',
    ),
    "Greek": (
        353,
        r'''# Διαβάζει το αρχείο ρυθμίσεων· αν δεν υπάρχει, επιστρέφει τις προεπιλογές
def load_config(path):
    """Αναλύει ένα αρχείο ρυθμίσεων.

    Η παράμετρος path είναι η διαδρομή του αρχείου. Επιστρέφει ένα λεξικό με τα ονόματα και τις τιμές των επιλογών.
    Αν η μορφή του αρχείου δεν είναι σωστή, προκαλεί σφάλμα με τον αριθμό της γραμμής.
    """
    with open(path) as file:  # άνοιγμα με την προεπιλεγμένη κωδικοποίηση
        return parse(file.read())  # χωρίς τα σχόλια και τις κενές γραμμές
''',
    ),
    "Arabic": (
        144,
        r'''# يقرأ ملف الإعدادات، وإذا لم يكن موجودا يعيد القيم الافتراضية
def load_config(path):
    """يحلل ملف الإعدادات.

    المعامل path هو مسار الملف. يعيد قاموسا مفاتيحه أسماء الخيارات وقيمه ما اختاره المستخدم.
    إذا كان تنسيق الملف غير صحيح، يرفع استثناء يذكر رقم السطر وسبب الخطأ.
    """
    with open(path) as file:  # افتح الملف بالترميز الافتراضي
        return parse(file.read())  # بعد حذف التعليقات والأسطر الفارغة
''',
    ),
    "Hebrew": (
        153,
        r'''# קורא את קובץ ההגדרות, ואם הקובץ לא קיים מחזיר את ערכי ברירת המחדל
def load_config(path):
    """מנתח קובץ הגדרות.

    הפרמטר path הוא הנתיב של הקובץ. מוחזר מילון שבו המפתח הוא שם האפשרות והערך הוא מה שהמשתמש בחר.
    אם מבנה הקובץ אינו תקין, נזרקת שגיאה עם מספר השורה והסיבה.
    """
    with open(path) as file:  # פתיחה בקידוד ברירת המחדל
        return parse(file.read())  # אחרי הסרת ההערות והשורות הריקות
''',
    ),
    "Hindi": (
        360,
        r'''# सेटिंग फ़ाइल पढ़ता है; अगर फ़ाइल नहीं है तो पहले से तय मान लौटाता है
def load_config(path):
    """सेटिंग फ़ाइल का विश्लेषण करता है।

    path फ़ाइल का पथ है। यह एक शब्दकोश लौटाता है जिसमें विकल्प का नाम और उपयोगकर्ता का मान होता है।
    अगर फ़ाइल का प्रारूप गलत है, तो पंक्ति की संख्या और कारण के साथ त्रुटि आती है।
    """
    with open(path) as file:  # सामान्य एन्कोडिंग में खोलें
        return parse(file.read())  # टिप्पणियाँ और खाली पंक्तियाँ हटाने के बाद
''',
    ),
    "Thai": (
        210,
        r'''# อ่านไฟล์การตั้งค่า ถ้าไม่มีไฟล์ให้คืนค่าเริ่มต้น
def load_config(path):
    """วิเคราะห์ไฟล์การตั้งค่า

    พารามิเตอร์ path คือที่อยู่ของไฟล์ ฟังก์ชันคืนพจนานุกรมที่มีชื่อของตัวเลือกและค่าที่ผู้ใช้กำหนด
    ถ้ารูปแบบของไฟล์ไม่ถูกต้อง จะเกิดข้อผิดพลาดพร้อมหมายเลขบรรทัดและสาเหตุ
    """
    with open(path) as file:  # เปิดด้วยรหัสอักขระเริ่มต้น
        return parse(file.read())  # หลังจากลบความคิดเห็นและบรรทัดว่าง
''',
    ),
    "Polish": (
        156,
        r'''# Czyta plik ustawień; jeśli pliku nie ma, zwraca wartości domyślne
def load_config(path):
    """Analizuje plik ustawień.

    Parametr path określa ścieżkę do pliku. Zwracany jest słownik, w którym kluczem jest nazwa opcji.
    Jeśli format pliku jest błędny, zgłaszany jest wyjątek z numerem wiersza i przyczyną błędu.
    """
    with open(path) as file:  # otwórz w domyślnym kodowaniu
        return parse(file.read())  # po usunięciu komentarzy i pustych wierszy
''',
    ),
    "emoji": (
        125,
        r"""STATES = {
    "ok": "✅ passed", "error": "❌ failed", "slow": "🐢 slow", "new": "✨ new",
    "bug": "🐛 bug fixed", "fast": "🚀 faster", "docs": "📝 docs", "test": "🧪 tests", "fire": "🔥 removed",
}
# ┌─────────┬──────────┐
# │ name    │ state    │
# └─────────┴──────────┘
# a → b, b ← c, c ≤ d, d ≠ e — “quoted” … and so on
""",
    ),
}

texts = st.text(st.sampled_from("aZ09 (\n_é—中文かなабвאבابअआ가✨🐛┌→ก"), max_size=60)


@pytest.mark.parametrize("script", SAMPLES)
def test_the_estimate_is_within_a_fifth_of_the_tokenizers_count(script: str):
    counted, text = SAMPLES[script]
    assert abs(token_count.tokens(text) / counted - 1) < 0.2


@pytest.mark.parametrize("script", ["Chinese", "Japanese", "Korean", "Greek", "Hindi", "Thai"])
def test_a_count_by_characters_alone_would_miss_by_a_third(script: str):
    counted, text = SAMPLES[script]
    assert len(text) / token_count.CHARACTERS_PER_TOKEN < 0.67 * counted


@given(st.text(), st.text())
def test_the_size_of_a_text_is_the_sum_of_its_parts(text: str, more: str):
    assert token_count.size(text + more) == token_count.size(text) + token_count.size(more)


@given(st.text())
def test_a_token_has_at_most_as_many_characters_as_in_ascii(text: str):
    assert len(text) <= token_count.tokens(text) * token_count.CHARACTERS_PER_TOKEN
    assert token_count.size(text.encode("ascii", "replace").decode()) == 50 * len(text)


def test_half_an_emoji_has_a_size():
    assert token_count.size("\ud83d") == token_count.size("🐛") // 2


@given(texts, st.integers(0, 9000), st.data())
def test_the_first_and_the_last_part_within_a_size_are_the_longest_ones(text: str, room: int, data: st.DataObject):
    at = data.draw(st.integers(0, len(text)))
    start, end = token_count.start_of_last(text, at, room), token_count.end_of_first(text, at, room)
    assert 0 <= start <= at <= end <= len(text)
    assert token_count.size(text[start:at]) <= room and token_count.size(text[at:end]) <= room
    assert start == 0 or token_count.size(text[start - 1 : at]) > room
    assert end == len(text) or token_count.size(text[at : end + 1]) > room


@given(st.lists(texts, max_size=4), st.integers(0, 9000))
def test_texts_fit_when_their_sizes_do(parts: list[str], room: int):
    assert token_count.fits(parts, room) == (sum(map(token_count.size, parts)) <= room)


@pytest.mark.parametrize("script", SAMPLES)
def test_a_prompt_stays_within_its_budget_in_every_script(script: str):
    counted, text = SAMPLES[script]
    config = ContextConfig(prefix_tokens=1000, suffix_tokens=300)
    document, cursor = text * 60, len(text) * 30
    snapshot = Snapshot("file:///p/a.py", "python", 1, document, cursor)
    context = build.build(snapshot, None, config)
    by_tokenizer = counted / len(text)
    assert 400 < len(context.prefix) * by_tokenizer < 1200
    assert 150 < len(context.suffix) * by_tokenizer < 360


@pytest.mark.parametrize("script", ["Chinese", "Russian", "emoji"])
def test_the_window_of_any_script_moves_in_steps_while_lines_are_added(script: str):
    _counted, text = SAMPLES[script]
    config, document, starts = ContextConfig(), text * 60, list[str]()
    for row in range(300, 340):
        cursor = sum(len(line) + 1 for line in document.split("\n")[:row])
        snapshot = Snapshot("file:///p/a.py", "python", 1, document[:cursor] + "x", cursor + 1)
        starts.append(str(cursor - len(build.build(snapshot, None, config).prefix)))
    assert 2 <= len(set(starts)) <= 8


def test_a_chunk_of_another_file_is_sized_by_its_script():
    counted, text = SAMPLES["Chinese"]
    assert abs(size_tokens(Chunk("a.py", text, 1.0)) - counted - PATH_TOKENS) < 0.2 * counted
