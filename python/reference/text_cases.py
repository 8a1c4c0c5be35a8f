"""The texts of the tokenizer fixtures (tests/fixtures/text): every script, every rule of the two split expressions."""

from __future__ import annotations

import random
import unicodedata

PROSE = [
    "Hello.", "Hello, world!", "The quick brown fox jumps over the lazy dog.",
    "She said: “I'll be there at 5 o'clock, won't you?”", "It's 9:30 a.m. on Dec. 24th, 1999; don't be late!",
    "In a hole in the ground there lived a hobbit. Not a nasty, dirty, wet hole.",
    "Dr. Smith paid $3,499.99 (plus 7.5% tax) for version 2.0.1-rc3.",
    "Guten Morgen! Wie geht's dir? Schöne Grüße aus München, z. B. vom Marienplatz.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Où est la gare ? Ça va très bien, merci beaucoup… L’été dernier, j’étais à Nîmes.",
    "Portez ce vieux whisky au juge blond qui fume.",
    "¿Dónde está la biblioteca? ¡Mañana será otro día!", "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia.",
    "Perché no? È così bello, città e università.", "À noite, vovô Kowalsky vê o ímã cair no pé do pinguim.",
    "O coração não tem razões que a própria razão desconhece.",
    "Привет, мир! Как дела? Съешь ещё этих мягких французских булок.", "Москва — столица России, 1147 г.",
    "你好，世界。今天天气很好，我们一起去公园吧！", "請問，這附近有沒有郵局？我想寄一封信。",
    "人工智能正在改变世界；机器学习、深度学习等技术发展迅速。", "价格是３．１４元，电话是１２３４５。",
    "こんにちは、世界。今日はとても良い天気ですね。", "吾輩は猫である。名前はまだ無い。", "コンピューターのデータをダウンロードする。",
    "ﾊﾝｶｸ ｶﾀｶﾅ ﾃﾞｽ。", "안녕하세요, 세계! 오늘 날씨가 참 좋네요.", "나는 학교에 갑니다. 감사합니다.",
    "नमस्ते दुनिया। आज मौसम बहुत अच्छा है॥", "हिन्दी में क्ष, त्र, ज्ञ और ऋ लिखिए।", "আমি বাংলায় গান গাই।", "தமிழ் மொழி மிகவும் பழமையானது.",
    "తెలుగు లిపి అందమైనది.", "ಕನ್ನಡ ನಾಡು.", "മലയാളം ഭാഷ.", "ગુજરાતી લખાણ.", "ਪੰਜਾਬੀ ਭਾਸ਼ਾ।", "සිංහල අකුරු.",
    "สวัสดีครับ ยินดีที่ได้รู้จัก", "ภาษาไทยไม่มีการเว้นวรรคระหว่างคำ", "ສະບາຍດີ ຊາວໂລກ", "សួស្តី ពិភពលោក។", "မင်္ဂလာပါ ကမ္ဘာ။",
    "བཀྲ་ཤིས་བདེ་ལེགས།", "مرحبا بالعالم، كيف حالك اليوم؟", "اَلسَّلامُ عَلَيْكُمْ وَرَحْمَةُ اللهِ", "این یک متن فارسی است؛ می‌خواهم بنویسم.",
    "یہ اردو ہے۔", "שלום עולם, מה שלומך?", "בְּרֵאשִׁית בָּרָא אֱלֹהִים", "Γειά σου Κόσμε; Τι κάνεις;", "ἐν ἀρχῇ ἦν ὁ λόγος",
    "გამარჯობა მსოფლიო", "Բարեւ աշխարհ։", "ሰላም ልዑል።", "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ᠃", "Xin chào thế giới, tôi không hiểu tiếng Việt.",
    "Dzień dobry, zażółć gęślą jaźń.", "Příliš žluťoučký kůň úpěl ďábelské ódy.", "Iğdır'ın İLÇESİ ıspanak", "Þetta er íslenska, æði!",
    "Ὀδυσσεύς ᾍδης ᾼ", "Mixed 中文 and English，混合Text测试OK吗?", "東京2020オリンピック", "한국어와English를 섞어요",
]

CODE = [
    "##", "###", "# Heading", "## heading two", "#include <stdio.h>", "#define MAX(a,b) ((a)>(b)?(a):(b))", "#1 #2 #tag #Tags ###### x",
    "#!/bin/bash\n# comment", "int main(void) { return 0; }\n", "def f(x):\n    return x**2\n\n\n", "a<b && b>c || !d", "x += 1; y -= 2; z /= 3;",
    "https://example.com/path/to/file.html?q=1&r=2#frag", "user.name+tag@example.co.uk", "C:\\Windows\\System32", "/usr/local/bin/", "http:////x//y",
    "//comment", "a // b /* c */ d", "!/ ?/ ./ ,/x", "...///\n/", "<b>bold</b> <i/> <br />", "{\"key\": [1, 2.5, null, true]}", "**bold** _it_ `code` ~~del~~",
    "| a | b |\n|---|---|\n", "getUserName()", "Call getUserName() now", "CamelCase camelCase HTTPServer XMLHttpRequest parseJSON5Data",
    "iPhone PayPal YouTube McDonald eBay GitHub iOS17 macOS", "OpenAI's GPT-4o vs. DeepMind's AlphaGo", "snake_case_name kebab-case-name SCREAMING_CASE",
    "e=mc²  x₁+x₂≥½ ∑∞ √2≈1.41", "$100 €50 £20 ¥1000 ₹5 ₿", "50% 5‰ №7 §3 ©2024 ™ ® ° ±", "→ ← ⇒ ■ ● ★ ☂ ♥ ✓",
]

CONTRACTIONS = [
    "don't", "DON'T", "I'm I'M i'M", "we'll WE'LL We'Ll", "they've THEY'VE", "you're YOU'RE", "he'd HE'D", "it's IT'S it'S", "'s't're've'm'll'd",
    "'sword 'tis 'twas 'reason 'very 'me 'lloyd 'dear", "'S 'T 'RE 'VE 'M 'LL 'D", "'ſ 'ſo it'ſ", "don’t I’m we’ll", "'x 'y '", "''s '''s 's's",
    "rock'n'roll o'clock y'all'd've", "a'b'c'd", "l'été d'un qu'il", "5's 'em n't", "'l 'v 'r 'la 'va 'ra", "McDonald'S iPhone's", "ain'tI", "'Re 'rE 'Ve 'lL",
]

DIGITS = [
    "2025", "0", "1234567890", "3.14159", "1,000,000", "1 2 3", "2025年12月31日", "٠١٢٣٤٥٦٧٨٩", "०१२३", "１２３", "①②③", "Ⅷ ⅷ ½ ¾ ²³ ₄", "〇一二三", "a1b2c3", "v1.2.3", "12:30:45",
    "+49 (0)89 / 123-456", "1st 2nd 3rd 4th", "0x1F 0b101 1e-5", "100km/h", "𝟘𝟙𝟚 𝟬𝟭", "৪৫", "๑๒๓", "10\u202f000", "1次", "2次", "1.", "1。", "9" * 40,
]

SPACES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", " \n \n ", "a b", "a  b", "a   b", "x\n\ny", "x\ny", "x \n y", "x\r\ny", "x\t\ty",
    " a", "  a", "   a", "\na", "\n\na", "\n\nstart", "\n\n\n  start", " \n\n start", "a ", "a  ", "a\n", "a\n\n", "a \n", "a.\n", "a.\n\n", "a. \n\nB", "a,\n\tb", "end!\n\n\nNew",
    "tab\tseparated\tvalues", "a\vb\fc", "a\x85b", "\x1c\x1d\x1e\x1f", "a\u00a0b", "a\u00a0\u00a0b", "a\u1680b", "a\u180eb", "\u180e", " \u180e ", "a\u2028b\u2029c", "a\u202fb", "12:00\u202fAM", "a\u205fb", "a\u3000b",
    "\u3000\u3000段落", "a\u200bb", "one\u200btwo", "\u200b\u200b", "a\ufeffb", "\ufeffstart", "a\u2060b", "pre\u00adrequi\u00adsite", "\u202bעברית\u202c", "\u2067عربي\u2069", "می\u200cخواهم", "क्\u200dष", "क्\u200cष",
    "a" + "".join(chr(c) + "b" for c in range(0x2000, 0x200b)), " " * 17, " " * 64 + "x", "\n" * 9, "a" + " " * 33 + "\n" * 3 + " " * 5 + "b", " \t \n\t \n",
    "\x00", "a\x00b", "\x01\x02\x7f", "x \u00a0 y", "\u2003\n\u2003x", "\u00a0\n", "one\n- \nthree", "* * *", "\"…\"", "- a\n-\n- b",
]

MARKS = [
    "e\u0301", "é", "cafe\u0301 café", "a\u0323\u0302 ậ", "a\u0302\u0323", "q\u0307\u0323 q\u0323\u0307", "\u0301", " \u0301", "\n\u0301x", "x\n\u0301", "A\u030a Å \u212b", "\u2126 \u212a", "o\u0308\u0304 ȫ", "u\u0308\u0301 ǘ",
    "=\u0338 <\u0338 >\u0338", "\u1100\u1161\u11a8 각", "\u1112\u1161\u11ab\u1100\u1173\u11af", "가\u11a8", "\u1100\u1161", "\u1100", "\u1161", "\u11a8\u1100", "\u3131\u314f", "\u09c7\u09be \u09c7\u09d7", "\u0b47\u0b56", "\u0bc6\u0bbe", "\u0cc6\u0cd5",
    "\u0dd9\u0dcf\u0dca", "\u1025\u102e", "\u0958 \u0915\u093c", "\u05e9\u05c1 \ufb2a", "\u0622 \u0627\u0653", "\u064a\u0654", "\u0344", "\u0340\u0341\u0343", "\u0f71\u0f72 \u0f73", "\u0f40\u0fb5 \u0f69", "\u1fee \u1ffd \u00b4", "\u2000\u2001",
    "\uf900\ufa0e\ufad9", "\U0002f800 \U0002fa1d", "\u304b\u3099 が", "\uff76\uff9e", "fi\ufb01 \ufb03", "\u1e9b\u0323", "\u0cbf\u0cd5", "\U0001d15e \U0001d1bc", "\U00011099\U000110ba", "\U00011131\U00011127",
    "Zal\u0300\u0316\u0301\u0317go\u0334\u0321", "x" + "\u0300\u0316" * 12, "İi\u0307", "ŉ ǰ ΐ", "\u0e01\u0e33 ก\u0e4d\u0e32", "n\u0303o n\u0303", "A\u0301B\u0301", "mar\u0327c\u0327o", "\u0950\u0902", "a\u20dd b\u20e3", "\u0661\u0301",
]

EMOJI = [
    "😀", "😀😃😄", "Hi 👋🏽!", "👨‍👩‍👧‍👦", "👩🏿‍🚀", "🏳️‍🌈", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇩🇪🇺🇸", "1️⃣2️⃣", "❤️ ❤", "☎️☎", "🎲🧒", "👍👍🏻👍🏿", "text😀text", "😀 😀", "🤷‍♂️ shrug", "¯\\_(ツ)_/¯", "ʕ•ᴥ•ʔ", ":-) ;-P <3", "🀄🃏", "🫠🫡", "\U0001fae8",
]

WORDS = [
    "internationalization", "antidisestablishmentarianism", "supercalifragilisticexpialidocious", "Donaudampfschifffahrtsgesellschaftskapitän", "Lopadotemachoselachogaleokranioleipsanodrimhypotrimmatosilphioparaomelitokatakechymenokichlepikossyphophattoperisteralektryonoptekephalliokigklopeleiolagoiosiraiobaphetraganopterygon",
    "aaaaaaaaaaaaaaaa", "a" * 100, "ab" * 60, "AaAaAaAa", "AAAAaaaaAAAA", "ЖжЖж", "ÀÉÎõü", "ǅ ǈ ǋ", "ʰʱʲ ˈa ːb", "ªº", "ﬀ", "ªA Aª", "aˈBc", "ΣΊΣΥΦΟΣ", "straße STRASSE ẞ", "ΌΣΟΣ", "中A文b", "aあA", "あA", "กA", "אAa", "ـA",
    "hhh", "asdfghjkl", "qwertyuiop zxcvbnm", "Łódź", "naïve façade", "jalapeño", "Ærøskøbing", "Đà Nẵng", "Åland", "µm Ωm", "ⓐⓑ ⒜", "🅰🅱", "𝓗𝓮𝓵𝓵𝓸", "𐐀𐐨", "𠮷野家", "ꙮ", "ﷺ", "ﻼ", "㍿㋿", "…—–‐‑", "«»„“”‚‘’", "「」『』【】〈〉《》", "、。，．・：；？！", "`~!@#$%^&*()-_=+[]{}\\|;:'\",<.>/?",
    "?!", "!?!", "....", "......", ". . .", " .", " ..", " ,a", ".a", "-a", "_a", "$a", "(a)", "\"a\"", "'a'", "¿a", "€a", "😀a", "\u200da", "\u00ada",
]

SPECIAL = [
    "<|im_end|>", "<|im_start|>", "a<|im_end|>b", "a <|im_end|> b", "<|im_end|", "|im_end|>", "<<|im_end|>>", "<|im_end|><|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_bos_single>", "<tts_text_bos_sing", "<tts_text_eod>.", "<think>hm</think>",
    "<tool_call>\n{}\n</tool_call>", "<tool_response>", "<|endoftext|>", "<|vision_pad|>x", "<|fim_prefix|><|fim_suffix|>", "<|audio_start|>e\u0301<|audio_end|>", "e<|im_end|>\u0301", "\n<|im_end|>\n", "\n\n<|im_start|>\n\n", "<|IM_END|>", "< |im_end|>", "<|im_end|>\u0301",
    "x<tts_pad", "<t", "<", "<|", "<|im", "a<b<|im_end|>c>d", "<|repo_name|>r<|file_sep|>f", "<|object_ref_start|>o<|object_ref_end|>", "<|box_start|>(1,2)<|box_end|>", "<|audio_pad|>", "<|quad_start|>",
]

# Letters and marks that came with Unicode 15 and 16: the reference's engine knows them, older PCRE2 does not.
NEWER = ["\U00031350\U000323af字", "\U0001e4d0\U0001e4d1 x", "\U00010d50\U00010d51\U00010d70\U00010d71", "\U00010d40\U00010d41", "a\U00011f34b", "\U0002ebf0a", "\ua7cb\ua7cd", "\U0001e030k", "\U00011f04\U00011f34 x", "\u1c89\u1c8aA",
    # and marks newer than Unicode 9, the version of its normaliser: they neither move nor compose
    "a\U0001e2ae\u0327", "a\u0327\U0001e2ae\u0301", "q\u0345\u07fd", "x\u08d0\u0334", "\U00011935\U00011930 \U00011938", "e\u0897\u0323\u0301", "a\u0345\U0001e4ec",
    "\U00011382\U000113c9", "\U00016121\U0001611e", "\U000105d2\u0307 \U000105c9", "\u0c15\u0c3c\u0c4d", "a\u1abf\u0301", "\U00016d67\U00016d67"]

# Where the two expressions tend to differ: case inside a word, contractions in mixed case, marks, '/' after line ends.
DIFFERING = [
    "LinkedIn TikTok WhatsApp WordPress JavaScript TypeScript PostgreSQL MongoDB", "OneDrive PowerPoint OpenOffice QuickTime FireFox", "iPad iTunes iCloud eBook eMail xBox",
    "toString fromJson parseInt onClick setTimeout addEventListener", "StringBuilder ArrayList HashMap NullPointerException", "DeepSeek ChatGPT LLaMA BERT RoBERTa PyTorch TensorFlow NumPy",
    "MacBook AirPods DeLorean LaTeX BibTeX McCartney O'Brien MacArthur DiCaprio", "HelloWorld helloWorld HELLOworld helloWORLD", "GmbH AG eV UStG StGB BGBl", "kWh MHz GHz dB mL pH",
    "I'Ll they'Ve you'rE DON't don'T", "It'S He'D We'Re", "McDonald's'S", "'Sure 'Twas 'Llama", "a.\n/b", "x!\n//y", "ok,\r\n/z", "?/\n/", ")\n/*",
    "สวัสดี", "ขอบคุณครับ", "ประเทศไทย กรุงเทพมหานคร", "น้ำ ข้าว ผัดไทย ต้มยำกุ้ง", "ที่นี่มีอาหารอร่อย", "مُحَمَّدٌ رَسُولُ اللهِ", "بِسْمِ اللهِ الرَّحْمٰنِ الرَّحِيمِ", "שָׁלוֹם עֲלֵיכֶם", "תּוֹרָה", "क्षत्रिय विद्यार्थी",
    "நன்றி வணக்கம்", "ধন্যবাদ", "ధన్యవాదాలు", "ನಮಸ್ಕಾರ", "നമസ്കാരം", "ขA กิB", "A\u0301bC\u0327D", "x\u0336y\u0336Z\u0336", "Ǆ ǅa aǅ", "ʼa ʼA", "aBcDeF AbCdEf", "ÉcoleNormale écoleNormale",
]

WRAPPED = [
    "Hello.", "", " ", "\n", "\n\n", "\n\nstart", "\r\nx", "\r", " x", "  x", "\tx", " \n x", "\u0301x", "\u3000x", "\u00a0\nx", "x\n", "x\n\n", "x ", "3", "'s", "!", "#", "你好", "สวัสดี", "😀", "<|im_end|>", "say <tts_pad> now",
    "a<|im_end|>\n<|im_start|>user\nb", "ends with <|im_", "ends with <", "\n<|im_start|>", "e<|im_end|>\u0301", "Two.\n\nParagraphs.", "Call getUserName() now", "iPhone", "x\r\n", "\u2028x", "\x85x", "\u180ex", "\ufeffx", "Speak slowly, in a warm voice.",
]


def random_texts(count: int) -> list[str]:
    """Random code points that were assigned in Unicode 14, in three mixtures."""
    rng = random.Random(20240711)
    assigned = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    marks = [c for c in assigned if unicodedata.category(c)[0] == "M"]
    small = list("aAbZé'  \n\r\t.,/!<#15") + ["'s", "'LL", "ſ", "É", "中", "ก", "\u0e34", "\u0301", "\u0327", "\u00a0", "\u1161", "\u11a8", "가", "\u1100", "ǅ", "ʰ", "‘", "😀"]
    texts = []
    for i in range(count):
        pool = [assigned, small, None][i % 3]
        length = rng.randint(1, 12 if i % 3 == 0 else 40)
        if pool is not None:
            texts.append("".join(rng.choice(pool) for _ in range(length)))
        else:
            texts.append("".join(rng.choice(marks) if rng.random() < 0.3 else rng.choice(small) for _ in range(length // 2 + 1)))
    return texts


def all_texts() -> list[str]:
    texts = PROSE + CODE + CONTRACTIONS + DIGITS + SPACES + MARKS + EMOJI + WORDS + SPECIAL + NEWER + DIFFERING
    texts += random_texts(240)
    return list(dict.fromkeys(texts))
