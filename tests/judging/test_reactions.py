"""The reader of reactions: the clause that speaks to the answer counts, and what is no reaction has no verdict."""

import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.play.judging.reactions.reader import read_reaction
from clawpipe.play.judging.reactions.words import lexicons

PRAISE = [
    "Thanks!",
    "that's exactly what I was after, thank you",
    "this is really not bad",
    "Thank you. Next question: how far is Rome?",
    "That's not what I expected, but it's even better, thanks!",
    "vielen Dank, jetzt klappt es",
    "C'est parfait, merci",
    "Muchas gracias, muy útil",
    "Ficou ótimo, obrigada",
    "Grazie mille, funziona",
    "Спасибо, всё работает",
    "谢谢,很有帮助",
    "ありがとうございます、助かりました",
    "\U0001f44d",
    "The error is gone now, thanks!",
    "Der Fehler ist weg, danke!",
    "El error desapareció, gracias",
    "Ошибка исчезла, спасибо",
    "报错没了,谢谢",
    "That's everything I needed, thank you.",
    "not bad at all!",
    "10/10",
    "You're right, I was wrong",
    "Thanks for fixing the error",
    "Great, that fixed the bug",
    "Perfect, no errors",
    "you just gave me a great idea",
    "Thanks!\n\nNow write the tests.",
    "thanks =)",
    "Thanks, it's what the users' 'home' needed",
    "many thx",
]
BLAME = [
    "That is wrong.",
    "this isn't what I asked for",
    "Thanks, but that doesn't work.",
    "Thanks, but that is wrong: 13.",
    "not tomorrow, today",
    "this is not correct it is wrong",
    "sorry, that's wrong",
    "you're not listening",
    "Thanks for nothing",
    "perfect \U0001f644",
    "Nope.",
    "No, I wanted a short answer",
    "No sorry, I was looking for the cheaper one.",
    "no i said blue, not green",
    "No, I asked for a table, thanks.",
    "Nein, ich wollte eine kurze Antwort",
    "Nein leider, ich suchte ein Hotel am See",
    "Non, je cherchais un hôtel",
    "No, quería una respuesta corta",
    "No, avevo chiesto tre esempi",
    "Não, pedi em inglês",
    "Нет, я хотел короткий ответ",
    "不,我想要一个简短的回答",
    "いいえ、短い答えが欲しかったです",
    "Das stimmt leider nicht.",
    "Ce n'est pas ce que je voulais",
    "Eso no es lo que te pedí",
    "Não funcionou",
    "Non funziona",
    "Это неправильно",
    "不对,我要的是明天的",
    "それは違います",
    "\U0001f44e",
    "That is not very helpful.",
    "Ce n'est pas très utile",
    "The error is not gone",
    "You're so annoying",
    "Eres muy inútil",
    "Sei un disastro",
    "Você é muito ruim nisso",
    "I meant Paris, Texas",
    "Sorry, that is not what I asked",
    "Thank you for nothing",
]
NOTHING = [
    "10",
    "you are a so-called expert",
    "Thanks!\n\nBut it still crashes.",
    "Thanks!\nThat is wrong.",
    "Danke.\nDas stimmt leider nicht.",
    "谢谢\n但是不对",
    "Great product, works perfectly!\n\nIs this review positive or negative?",
    "Thank you for your order.\nIt is on its way.\n\nWhat does this mail want?",
    "That is wrong.\n\nTranslate the above into German.",
    "Danke, das passt.\n\nIst diese Bewertung positiv oder negativ?",
    "Merci beaucoup.\n\nTraduis en anglais",
    "谢谢你的帮助。\n\n把上面的翻译成英文",
    "Thank you very much.\n^ how do I say that in Polish?",
    "2024-01-02 12:00:01 ERROR that is wrong",
    "FAILED tests/test_a.py - that's wrong",
    "$ thanks",
    "# Thanks\nTo all who helped",
    "thanks = 3",
    "text=thanks",
    "thanks|perfect",
    "'Thanks, perfect', said Tom",
    "\u2018That is wrong\u2019, said Tom",
    "thank you in French",
    "danke auf Französisch",
    "gracias en inglés",
    "Thanks, but no thanks.",
    "Danke, aber nein danke",
    "Gracias, pero no gracias",
    "I'm stupid",
    "Ich bin so blöd",
    "nah I'm good",
    "Entschuldigung, falsche Datei",
    "pardon, mauvais fichier",
    "прости, не тот файл",
    "谢谢你的错误答案",
    "\U0001f44d\U0001f44e",
    "Du bist ein Idiot",
    "I think it helps me lose weight",
    "It's not bad to be tall",
    "You're missing out on the summer",
    "so that it doesn't make any noise",
    "A list would be helpful",
    "thanks anyway",
    "That's just what I hear people say",
    "Why do you like cats",
    "It's not my first time there",
    "Das ist nicht mein erstes Mal dort.",
    "C'est pas la première fois que j'y vais",
    "Eso no lo sabía",
    "Questo non lo sapevo",
    "Isso não importa agora",
    "Это не срочно",
    "",
    "ok",
    "Is there a great restaurant in Lyon?",
    "How do I say thank you in French?",
    "The history and significance of the Great Wall",
    "I'd prefer to use my credit card instead",
    "Use the train instead of the car",
    "Great question: main.py",
    "error: failed to push some refs",
    "Thanks a lot, now my cat is on the roof.",
    "Thanks in advance",
    "No, thanks",
    "No, I wanted to thank you!",
    "No, I wanted to ask something else.",
    "No, I asked my doctor and he agrees.",
    "No problem, I wanted to know that",
    "No, I would like the red one please",
    "No, if I wanted a table I would say so",
    "Nein, ich wollte mich bedanken",
    "Non, je voulais vous remercier",
    "What is wrong with using --hard?",
    "if it does not work I will tell you",
    "Translate: Thank you very much, that was wrong",
    "He wrote: \u201cperfect, thank you\u201d",
    "> Thank you, perfect!",
    "```\nraise ValueError('that is wrong')\n```",
    "[cron] backup done. Thanks!",
    "<system-reminder> Great job",
    "From: Dana\nThanks for the great quarter, everyone.",
    "Could you send it to Ann? Thanks!",
    "Wo ist hier ein gutes Restaurant?",
    "Die Bahn ist furchtbar, immer zu spät.",
    "Gracias de antemano",
    "No errors anymore, thanks",
    "You are not wrong",
    "You're not missing anything",
    "You didn't break anything",
    "That's not a bad idea",
    "I was wrong",
    "Das ist nicht falsch",
    "das war nicht schlecht",
    "ich lag falsch",
    "Mir ist schlecht",
    "tu n'as pas tort",
    "me equivoqué",
    "non è sbagliato",
    "não está errado",
    "не так уж плохо",
    "мне плохо",
    "間違っていません",
    "我错了",
    "thanks to your code the db is gone",
    "Thank you letter to my boss please",
    "谢谢的英文怎么说",
    # one's own mistake: what was meant is no blame
    "Sorry, I meant Paris",
    "My bad, I meant the other one",
    "I meant Hamburg, sorry, typo",
    "Entschuldigung, ich meinte Köln",
    "Désolé, je voulais dire demain",
    "Perdón, quise decir mañana",
    "Desculpa, quis dizer amanhã",
    "Извини, я имел в виду завтра",
    "抱歉,我是说明天",
    # thanks for harm, and praise that is taken back
    "Thanks for breaking my site",
    "Thanks for the wrong answer",
    "Nice work ruining my formatting",
    "Danke für die falsche Antwort",
    "Merci d'avoir tout cassé",
    "Gracias por borrar mis archivos",
    "Спасибо за бесполезный ответ",
    "谢谢你的废话",
    "Lovely, yet another bug",
    "Very helpful... not",
    "so helpful /s",
    "Thanks I guess",
    # thanks for what is still to come
    "Thanks a lot in advance",
    "Danke schon mal",
    "Merci d'avance",
    "Thanks for your help in advance",
    # words that only begin like blame or thanks
    "no no it's fine",
    "No I like it",
    "You didn't have to do that, thanks",
    "You haven't seen the film yet",
    "I asked for directions at the station",
    "I clearly need a holiday",
    "read the instructions and summarise them",
    "不对称加密是什么",
    "没用过Python",
    "毫无疑问北京最大",
    "ありがとうは英語で何ですか",
    "Perus on valmis",
    "Dziękuję bardzo",
]


@pytest.mark.parametrize(
    ("text", "sign"), [*((text, 1) for text in PRAISE), *((text, -1) for text in BLAME), *((text, 0) for text in NOTHING)]
)
def test_a_reaction_has_a_sign_and_everything_else_has_none(text, sign):
    reaction = read_reaction(text)
    assert (reaction.sign if reaction else 0) == sign


def test_a_no_after_a_question_of_the_assistant_answers_it():
    assert read_reaction("No.", "Shall I book it?") is None
    assert read_reaction("No.", "It is 12.").sign == -1
    assert read_reaction("No, I wanted a window.", "Shall I book the aisle?") is None
    assert read_reaction("No, I wanted a window, but that one is better.").sign == 1


def test_nine_languages_have_words():
    assert sorted(lexicons()) == ["de", "en", "es", "fr", "it", "ja", "pt", "ru", "zh"]


SAID = st.sampled_from([text for text in [*PRAISE, *BLAME, *NOTHING[1:15]] if "\n" not in text])


def sign_of(text):
    reaction = read_reaction(text)
    return reaction.sign if reaction else 0


@given(SAID)
@settings(deadline=None)
def test_case_does_not_change_the_verdict(text):
    assert sign_of(text.upper()) == sign_of(text.lower()) == sign_of(text)


@given(SAID, st.sampled_from(["!", "!!", ".", "...", " ", " !"]))
@settings(deadline=None)
def test_marks_at_the_end_do_not_change_the_verdict(text, marks):
    assert sign_of(text + marks) == sign_of(text)


@given(SAID, st.lists(st.sampled_from([*PRAISE, *BLAME]), max_size=3), st.lists(st.sampled_from([*PRAISE, *BLAME]), max_size=3))
@settings(deadline=None)
def test_pasted_quotations_do_not_change_the_verdict(text, before, after):
    pasted = [textwrap.indent("\n".join(lines), "> ", lambda _: True) for lines in (before, after)]
    assert sign_of("\n".join([pasted[0], text, pasted[1]])) == sign_of(text)


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text_is_read(text):
    assert sign_of(text) in (-1, 0, 1)


@pytest.mark.parametrize("piece", ["thank you ", '"', "not ", "谢", "a,", "\n> x", "not good but "])
def test_huge_texts_take_no_longer_than_short_ones(piece):
    started = time.process_time()
    read_reaction(piece * (2_000_000 // len(piece)))
    assert time.process_time() - started < 1
