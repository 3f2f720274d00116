"""The objects, cities and phrasings of the shop: short lists with thousands of combinations. `{x}` is the object,
city or expression, `{q}` the question."""

from __future__ import annotations

_KINDS = (
    "iron", "oak", "silk", "wool", "copper", "glass", "leather", "paper", "stone", "silver", "brass", "cotton",
    "pine", "steel", "velvet", "wicker", "rubber", "straw", "marble", "bamboo", "canvas", "linen", "plastic", "ceramic",
    "felt", "gold", "bronze", "tin", "cork", "denim", "maple", "walnut", "cedar", "birch", "granite", "crystal",
    "pearl", "ivory", "jade", "amber", "red", "blue", "green", "yellow", "white", "black", "brown", "grey",
    "orange", "purple", "pink", "striped", "painted", "folding", "round", "square", "tall", "small", "large", "tiny",
    "wide", "long", "short", "heavy", "light", "old", "new", "plain", "soft", "hard", "garden", "travel",
)  # fmt: skip

_THINGS = (
    "kettle", "table", "ribbon", "blanket", "lamp", "bottle", "belt", "lantern", "bowl", "ring", "bell", "shirt",
    "stool", "fork", "curtain", "basket", "hose", "board", "towel", "shovel", "clock", "boot", "hat", "mirror",
    "frame", "handle", "roller", "rod", "racket", "jug", "holder", "mug", "mill", "pump", "tent", "mat",
    "coat", "cage", "stand", "bag", "radio", "vase", "chair", "tote", "napkin", "bucket", "plate", "slipper",
    "necklace", "pillow", "cushion", "drawer", "ladder", "hammer", "cup", "jar", "tray", "chest", "desk", "bench",
    "cabinet", "rug", "carpet", "sofa", "crib", "helmet", "glove", "jacket", "apron", "wallet", "purse", "bracelet",
    "candle", "statue", "drum", "guitar", "puzzle", "kite", "ball", "wagon",
)  # fmt: skip

_CAPITALS = (
    "Oslo", "Madrid", "Lisbon", "Vienna", "Dublin", "Athens", "Berlin", "Paris", "Rome", "Prague",
    "Warsaw", "Helsinki", "Brussels", "Budapest", "London", "Tokyo", "Seoul", "Beijing", "Delhi", "Mumbai",
    "Sydney", "Toronto", "Chicago", "Boston", "Denver", "Dallas", "Miami", "Seattle", "Nairobi", "Havana",
    "Santiago", "Bogota", "Moscow", "Istanbul", "Bangkok", "Jakarta", "Manila", "Munich", "Geneva", "Zurich",
)  # fmt: skip

_BEGINNINGS = (
    "Ash", "Oak", "Elm", "Birch", "Maple", "Cedar", "Pine", "Rose", "Lark", "Swan", "Fox", "Wolf",
    "Bear", "Deer", "Hawk", "Raven", "Stone", "Silver", "Gold", "Iron", "Copper", "Snow", "Frost", "Rain",
    "Storm", "Sun", "Moon", "Star", "North", "South", "East", "West", "High", "Low", "Long", "Broad",
    "White", "Black", "Red", "Green", "Blue", "Grey", "New", "Old", "King", "Queen", "Bishop", "Abbot",
    "Mill", "Cross", "Castle", "Church", "Market", "Harbor", "River", "Lake", "Summer", "Winter", "Clay", "Sand",
)  # fmt: skip

_ENDINGS = (
    "ford", "ton", "ham", "field", "burg", "bury", "port", "mouth", "wick", "worth", "by", "dale",
    "land", "view", "side", "haven", "gate", "ville", "brook", "bourne", "combe", "cliff", "crest", "dorf",
    "fell", "grove", "hurst", "ley", "mere", "minster", "moor", "ness", "pool", "ridge", "shire", "stead",
    "stow", "thorpe", "wall", "water", "well", "wood", "hill", "bridge",
)  # fmt: skip

OBJECTS = tuple(f"{kind} {thing}" for kind in _KINDS for thing in _THINGS)
CITIES = (*_CAPITALS, *(beginning + ending for beginning in _BEGINNINGS for ending in _ENDINGS))

SKIES = ("sunny", "cloudy", "rainy", "snowy", "windy", "foggy", "stormy", "dry")

QUESTIONS = {
    "stock": (
        "How many {x}s are in stock?",
        "Check the stock of the {x}.",
        "How many {x}s do you have?",
        "What is the stock of the {x}?",
        "Tell me how many {x}s are left.",
        "How many of the {x} are available?",
        "Is the {x} in stock, and how many?",
        "Give me the stock level of the {x}.",
        "Count the {x}s in stock.",
        "I need the number of {x}s in stock.",
    ),
    "price": (
        "What is the price of the {x}?",
        "How much does the {x} cost?",
        "How much is the {x}?",
        "What does a {x} cost?",
        "What would I pay for the {x}?",
        "Find the cost of one {x}.",
        "How much money do I need for a {x}?",
        "What do you charge for the {x}?",
        "I want to buy the {x}, how much is it?",
        "What do you sell the {x} for?",
    ),
    "weather": (
        "What is the weather in {x}?",
        "How is the weather in {x}?",
        "What is it like outside in {x}?",
        "What weather does {x} have today?",
        "How does the sky look over {x}?",
        "I am going to {x}, how is the weather?",
        "Do I need an umbrella in {x}?",
        "Is it raining in {x}?",
        "Sun or rain in {x} today?",
        "What should I wear in {x} today?",
    ),
    "calc": (
        "What is {x}?",
        "Calculate {x}.",
        "Compute {x}.",
        "How much is {x}?",
        "Work out {x}.",
        "What does {x} equal?",
        "Find the value of {x}.",
        "I need {x} worked out.",
        "Tell me the result of {x}.",
        "Evaluate {x} for me.",
    ),
}

# What people say around a question.
FRAMES = ("{q}", "Hello! {q}", "{q} Thank you!")

# Worked dialogues of the preamble: tool, question, argument, result. Nothing in them is on either side of the split. Their
# order matters: a small model leans on the last one, so the tool that it confuses most often, stock, comes last.
EXAMPLES = (
    ("weather", "Is it nice in {x} now?", "Cairo", "hot"),
    ("price", "How much for one {x}?", "clay pot", "8.5"),
    ("calc", "Solve {x}.", "60 + 71", "131"),
    ("stock", "How many {x}s are there?", "wooden spoon", "34"),
)
