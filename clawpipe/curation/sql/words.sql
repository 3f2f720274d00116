-- Words that several steps use. No step of its own.

-- What a trajectory says: roles, contents, and names and arguments of calls. Call ids are left out (equal conversations differ in
-- them) and a missing content counts as a value of its own (joining strings would skip it).
create temp macro body_digest(messages) as sha256(to_json([
    {r: m.role, c: m.content, t: [[call.name, call.arguments] for call in coalesce(m.tool_calls, [])]} for m in messages
])::varchar);

-- Texts are compared without regard to case, spacing and Unicode's ways to write one character; punctuation counts, since it
-- is all that tells "3 + 4" from "3 - 4".
create temp macro plain(text) as trim(regexp_replace(lower(nfc_normalize(text)), '\s+', ' ', 'g'));

create temp macro question_digest(question) as sha256(plain(question));

-- What the policy said, in plain words: its contents, and names and arguments of its calls.
create temp macro said_digest(messages) as sha256(to_json([
    {c: plain(m.content), t: [[call.name, plain(call.arguments)] for call in coalesce(m.tool_calls, [])]}
    for m in messages if m.role = 'assistant'
])::varchar);

create temp macro user_texts(messages) as [m.content for m in messages if m.role = 'user'];

-- How many messages stand before the first turn: turns are the last assistant messages, one each.
create temp macro prompt_length(messages, turns) as
    list_filter(range(1, len(messages) + 1), lambda i: messages[i].role = 'assistant')[-len(turns)] - 1;

-- For each of `length` tokens the number of its turn, from 1; 0 for tokens that the policy did not sample.
create temp macro turn_of(turns, length) as list_resize(flatten([
    repeat([0], greatest(t.start - coalesce(turns[k - 1]."end", 0), 0)) || repeat([k], greatest(t."end" - t.start, 0))
    for t, k in turns
]), length, 0);
