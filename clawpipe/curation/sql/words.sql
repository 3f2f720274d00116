-- Words that several steps use. No step of its own.

-- What a trajectory says: roles, contents, and names and arguments of calls. Call ids are left out (equal conversations differ in
-- them) and a missing content counts as a value of its own (joining strings would skip it).
create temp macro body_digest(messages) as sha256(to_json([
    {r: m.role, c: m.content, t: [[call.name, call.arguments] for call in coalesce(m.tool_calls, [])]} for m in messages
])::varchar);

-- Questions are compared without regard to case, spacing and Unicode's ways to write one character; punctuation counts, since it
-- is all that tells "3 + 4" from "3 - 4".
create temp macro question_digest(question) as sha256(trim(regexp_replace(lower(nfc_normalize(question)), '\s+', ' ', 'g')));

create temp macro user_texts(messages) as [m.content for m in messages if m.role = 'user'];
