"""What the shop sells, the cities it knows, and how people ask. `{x}` is the object, city or expression."""

from __future__ import annotations

OBJECTS = (
    "iron kettle", "oak table", "silk ribbon", "wool blanket", "copper lamp", "glass bottle", "leather belt", "paper lantern",
    "stone bowl", "silver ring", "brass bell", "cotton shirt", "pine stool", "steel fork", "velvet curtain", "wicker basket",
    "garden hose", "desk lamp", "bread board", "tea towel", "snow shovel", "wall clock", "rubber boot", "straw hat",
    "hand mirror", "picture frame", "door handle", "paint roller", "fishing rod", "tennis racket", "water jug", "candle holder",
    "soup spoon", "coffee mug", "pepper mill", "bicycle pump", "camping tent", "yoga mat", "rain coat", "bird cage",
    "chess board", "music stand", "travel bag", "pocket radio", "marble vase", "bamboo chair", "canvas tote", "linen napkin",
    "plastic bucket", "ceramic plate", "felt slipper", "gold necklace",
)  # fmt: skip

CITIES = (
    "Oslo", "Madrid", "Lisbon", "Vienna", "Dublin", "Athens", "Berlin", "Paris", "Rome", "Prague",
    "Warsaw", "Helsinki", "Brussels", "Budapest", "London", "Tokyo", "Seoul", "Beijing", "Delhi", "Mumbai",
    "Sydney", "Toronto", "Chicago", "Boston", "Denver", "Dallas", "Miami", "Seattle", "Nairobi", "Havana",
    "Santiago", "Bogota", "Moscow", "Istanbul", "Bangkok", "Jakarta", "Manila", "Munich", "Geneva", "Zurich",
)  # fmt: skip

SKIES = ("sunny", "cloudy", "rainy", "snowy", "windy", "foggy", "stormy", "dry")

PHRASINGS = {
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

# Worked dialogues of the preamble: tool, question, argument, result. Nothing in them is on either side of the split. Their
# order matters: a small model leans on the last one, so the tool that it confuses most often, stock, comes last.
EXAMPLES = (
    ("weather", "Is it nice in {x} now?", "Cairo", "hot"),
    ("price", "How much for one {x}?", "clay pot", "8.5"),
    ("calc", "Solve {x}.", "60 + 71", "131"),
    ("stock", "How many {x}s are there?", "wooden spoon", "34"),
)
