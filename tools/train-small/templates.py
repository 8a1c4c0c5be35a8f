"""Sentences from templates: numbers, dates, times, money, questions and the phrases of a voice assistant."""

from __future__ import annotations

import random
from typing import Callable

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
EVENTS = "meeting train flight lesson concert appointment delivery interview call dinner bus game class show".split()
PLACES = (
    "London Paris Berlin Boston Chicago Madrid Rome Tokyo Dublin Seattle Denver Vienna Oslo Sydney Toronto Cairo "
    "Lisbon Geneva Prague Athens Dallas Houston Milan Zurich Warsaw Delhi Nairobi Lima Havana Moscow"
).split()
WEATHER = "sunny cloudy rainy windy foggy warm cold clear stormy mild snowy hot dry humid".split()
UNITS = (
    "minutes hours days weeks months years dollars pounds miles meters degrees percent pages files messages people "
    "seconds kilometers books songs steps tickets boxes houses chairs cups children photos windows"
).split()
THINGS = (
    "door window lamp kitchen light car phone letter book table garden radio camera printer computer key coat bottle "
    "map ticket picture house street river bridge garage office station market library hospital school"
).split()
NAMES = (
    "Alice Anna Ben Carl Clara David Emma Frank Grace Henry Helen Jack James Jane John Julia Kate Laura Lucy Mark "
    "Martin Mary Michael Nina Oliver Paul Peter Rachel Robert Rose Sam Sarah Simon Susan Thomas Tom Victor William"
).split()
COLOURS = "red green blue black white yellow brown grey orange purple silver golden".split()
HELLO = (
    "Good morning,Good evening,Good afternoon,Hello,Hi there,Welcome back,Thank you,Excuse me,All right,Of course,"
    "Sure,Sorry,Okay,One moment,Yes,No problem"
).split(",")
SERVICE = (
    "how can I help you today?|what would you like to do next?|I am ready when you are.|please say that again.|"
    "your order is ready.|I have saved the file for you.|the download is complete.|I could not find that page.|"
    "please check your connection.|the system will restart soon.|your battery is low.|I can read the news to you.|"
    "the computer is running normally.|would you like to hear more?|I turned on the lights in the kitchen.|"
    "the music will start in a moment.|let me look that up for you.|the timer is set.|you have no new messages.|"
    "please wait a moment.|that is all for now.|it is nice to meet you.|I did not understand the question.|"
    "here is what I found.|the answer may take a little while.|I will remind you later.|the update was installed.|"
    "everything is working as expected.|you can ask me anything.|I am listening.|this is a small voice.|"
    "the assistant is now online.|speech is running on this machine.|the workstation was locked an hour ago."
).split("|")
VERBS = "open close find move clean paint sell buy repair check bring watch carry lock show keep".split()
MANNERS = "slowly,quickly,quietly,carefully,right away,after lunch,before noon,every day,once more,as soon as you can".split(",")


def number(n: int) -> str:
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + ("-" + ONES[n % 10] if n % 10 else "")
    if n < 1000:
        return ONES[n // 100] + " hundred" + (" and " + number(n % 100) if n % 100 else "")
    return number(n // 1000) + " thousand" + (" " + number(n % 1000) if n % 1000 else "")


def sentence(rng: random.Random) -> str:
    """One random sentence; numbers as words or as digits."""
    pick = rng.choice

    def quantity() -> str:
        n = rng.randint(0, 120) if rng.random() < 0.7 else rng.randint(100, 9999)
        return number(n) if rng.random() < 0.6 else str(n)

    def clock() -> str:
        hour, minute = rng.randint(1, 12), pick([0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, rng.randint(1, 59)])
        if rng.random() < 0.5:
            return f"{hour}:{minute:02d}" if minute else f"{hour} o'clock"
        return number(hour) + " " + (number(minute) if minute >= 10 else "oh " + number(minute) if minute else "o'clock")

    def day() -> str:
        if rng.random() < 0.3:
            return f"{pick(MONTHS)} {rng.randint(1, 31)}"
        return f"{pick(DAYS)}, {pick(MONTHS)} {pick(ORDINALS)}" if rng.random() < 0.5 else f"the {pick(ORDINALS)} of {pick(MONTHS)}"

    def year() -> str:
        y = rng.randint(1920, 1999)
        return str(y) if rng.random() < 0.5 else "nineteen " + number(y % 100)

    def line() -> str:
        s = pick(SERVICE)
        return s[0].upper() + s[1:]

    kinds: list[Callable[[], str]] = [
        lambda: f"{pick(HELLO)}, {pick(SERVICE)}",
        lambda: f"{pick(HELLO)}. {line()}",
        lambda: f"{line()} {line()}",
        lambda: f"{pick(HELLO)}, {pick(NAMES)}. {line()}",
        lambda: f"The {pick(EVENTS)} starts at {clock()}.",
        lambda: f"It is {clock()} on {day()}.",
        lambda: f"Your {pick(EVENTS)} is on {day()} at {clock()}.",
        lambda: f"There are {quantity()} {pick(UNITS)} left.",
        lambda: f"It will be {pick(WEATHER)} in {pick(PLACES)} on {pick(DAYS)}.",
        lambda: f"The next {pick(EVENTS)} to {pick(PLACES)} leaves in {quantity()} minutes.",
        lambda: f"Call me at {' '.join(pick(ONES[:10]) for _ in range(rng.randint(3, 7)))}.",
        lambda: f"What is {quantity()} plus {quantity()}?",
        lambda: f"How many {pick(UNITS)} are there in {quantity()} {pick(UNITS)}?",
        lambda: f"Is it {pick(WEATHER)} or {pick(WEATHER)} in {pick(PLACES)} today?",
        lambda: f"Set a timer for {quantity()} minutes.",
        lambda: f"Remind me about the {pick(EVENTS)} on {day()}.",
        lambda: f"{pick(NAMES)} was born on {day()}, {year()}.",
        lambda: f"The answer is {quantity()}.",
        lambda: f"{pick(PLACES)} is {quantity()} miles from {pick(PLACES)}.",
        lambda: f"The {pick(COLOURS)} {pick(THINGS)} costs {quantity()} dollars.",
        lambda: f"Page {rng.randint(1, 400)}, line {rng.randint(1, 60)}.",
        lambda: f"Room {rng.randint(1, 999)} is on the {pick(ORDINALS)} floor.",
        lambda: f"In {year()} {pick(NAMES)} moved to {pick(PLACES)}.",
        lambda: f"Please {pick(VERBS)} the {pick(COLOURS)} {pick(THINGS)} {pick(MANNERS)}.",
        lambda: f"Did {pick(NAMES)} {pick(VERBS)} the {pick(THINGS)} near the {pick(THINGS)}?",
        lambda: f"{pick(NAMES)} and {pick(NAMES)} will {pick(VERBS)} the {pick(THINGS)} on {pick(DAYS)}.",
        lambda: f"Where is the {pick(THINGS)} that {pick(NAMES)} left in {pick(PLACES)}?",
        lambda: f"I would rather {pick(VERBS)} the {pick(THINGS)} than the {pick(THINGS)}.",
        lambda: f"{pick(NAMES)}, {pick(NAMES)}, {pick(NAMES)} and {pick(NAMES)}.",
        lambda: f"{pick(COLOURS).capitalize()}, {pick(COLOURS)} and {pick(COLOURS)}.",
        lambda: f"{number(rng.randint(0, 9999)).capitalize()}.",
        lambda: f"Turn the {pick(THINGS)} {pick(['on', 'off'])} at {clock()}.",
    ]
    return pick(kinds)()
