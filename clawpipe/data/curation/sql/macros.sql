-- Macros that several steps use. This is not a step.

-- Digests are 64 bits, narrow to keep, to carry and to sort: that any two of ten million texts share them has a chance of 3 in a
-- million. They are the engine's own hash, whose version is part of what names the measures. It takes lists of lists for one list, and
-- zeros before a number for nothing, so lists are hashed level by level, and those of small numbers with their length.

-- What a trajectory says: roles, contents, and names and arguments of calls. Call ids are left out (equal conversations differ in
-- them) and a missing content counts as a value of its own (joining strings would skip it).
create temp macro body_digest(messages) as hash([
    hash(m.role, m.content, hash([hash(call.name, call.arguments) for call in coalesce(m.tool_calls, [])])) for m in messages
]);

-- Texts are compared without regard to case, spacing and Unicode's ways to write one character; punctuation counts, since it
-- is all that tells "3 + 4" from "3 - 4". Every text ends up between single spaces: cutting them off would cost more than the rest.
-- The pattern leaves other single spaces alone: each replacement costs, and words are many.
create temp macro plain(text) as regexp_replace(
    ' ' || lower(nfc_normalize(text)) || ' ',
    '[\t\n\f\r\x{A0}\x{1680}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}][\s\p{Zs}]*| [\s\p{Zs}]+', ' ', 'g'
);

-- What a question is compared by: its marks at either end say nothing, those within it do.
create temp macro without_marks(text) as regexp_replace(text, '^[\s\p{P}]+|[\s\p{P}]+$', '', 'g');
create temp macro bare(text) as without_marks(plain(text));
create temp macro question_digest(question) as case when bare(question) <> '' then hash(bare(question)) end;

-- The text of the assistant's messages: contents, and names and arguments of calls.
create temp macro reply_digest(messages) as hash([
    hash(plain(m.content), hash([hash(call.name, plain(call.arguments)) for call in coalesce(m.tool_calls, [])]))
    for m in messages if m.role = 'assistant'
]);

create temp macro tokens_digest(token_ids) as hash(len(token_ids), token_ids);

create temp macro user_texts(messages) as [m.content for m in messages if m.role = 'user'];

-- Where the messages of the turns stand: turns are the last assistant messages, one each. Without turns (text only) all are. Of text
-- that was rendered `kinds` says which assistant messages are main, since others are no turns.
create temp macro replies_at(messages) as list_filter(range(1, len(messages) + 1), lambda i: messages[i].role = 'assistant');
create temp macro turn_places(messages, turns, kinds := null) as
    case
        when kinds is null then replies_at(messages)[-len(turns):]
        else [place for place, k in replies_at(messages) if kinds[k] = 'main']
    end;

-- Turns of a text that was rendered: each run of its mask is one. Turns that are not to be learnt from are not in it.
create temp macro rendered_turns(mask) as [
    {start: span[1]::int, "end": span[2]::int, kind: 'main', finish_reason: 'stop'}
    for span in list_zip(
        list_filter(range(len(mask)), lambda i: mask[i + 1] and not coalesce(mask[i], false)),
        list_filter(range(1, len(mask) + 1), lambda i: mask[i] and not coalesce(mask[i + 1], false))
    )
];

-- The number of each turn among all assistant messages, from 0, by which scores of what was imported name it; those of rollouts
-- name the turns that the policy took.
create temp macro turn_numbers(messages, places, source, turns) as
    case
        when source = 'rollout' then range(len(turns))::int[]
        else [list_position(replies_at(messages), place) - 1 for place in places]::int[]
    end;

-- What the note of a row that was shortened says; null for any other row.
create temp macro kept_turns(extra) as try_cast(json_extract(extra, '$.compressed_by_clawpipe.turns') as int[]);
create temp macro asked_before(extra) as try_cast(json_extract(extra, '$.compressed_by_clawpipe.asked') as varchar[]);

-- For each turn whether what follows it, up to the next one, is the user's words and nothing else.
create temp macro answered_by_user(messages, places) as [
    place + 1 < places[k + 1] and list_bool_and([m.role = 'user' for m in messages[place + 1:places[k + 1] - 1]])
    for place, k in places
];

-- The text of each assistant message.
create temp macro replies(messages, places) as [messages[place].content for place in places];

create temp macro calls(messages) as flatten([coalesce(m.tool_calls, []) for m in messages]);

-- Whether two rewards differ by more than the rounding of sums of floats, as 0.1 + 0.2 and 0.3 do.
create temp macro differ(higher, lower) as higher - lower > 1e-9 * greatest(1, abs(higher), abs(lower));

-- Letters alone: digits, punctuation and marks belong to no language.
create temp macro letters_of(text) as regexp_replace(text, '\P{L}+', '', 'g');

-- The share that is left of some letters without what `foreign` matches; null where there is no letter.
create temp macro share_of_letters(letters, "foreign") as
    length(regexp_replace(letters, "foreign", '', 'g')) / nullif(length(letters), 0);

-- Words are runs of letters and digits, or single characters of scripts that are written without spaces.
create temp macro words_of(text) as
    regexp_extract_all(lower(text), '[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|[\p{L}\p{M}\p{N}]+');

-- The words of a question. Signs of arithmetic are words too, since they are all that tells "3 + 4" from "3 - 4".
create temp macro question_words(text) as regexp_extract_all(
    regexp_replace(plain(text), '([\s\p{Z}\p{Ps}])-([\s\p{Z}\p{N}])', '\1−\2', 'g'),
    '[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|[\p{Sm}*/^%]|[\p{L}\p{M}\p{N}]+'
);

-- How much a text says, in words. Where a script has no spaces two to four characters are as much as a word.
create temp macro characters(text, script) as length(regexp_replace(text, '\P{' || script || '}+', '', 'g'));
create temp macro content_of(text) as
    len(regexp_extract_all(
        regexp_replace(text, '[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+', ' ', 'g'), '[\p{L}\p{M}\p{N}]+'
    ))
    + characters(text, 'Han') / 2
    + (characters(text, 'Hiragana') + characters(text, 'Katakana')) / 3
    + (characters(text, 'Thai') + characters(text, 'Lao') + characters(text, 'Khmer') + characters(text, 'Myanmar')) / 4;

-- Every `n` words in a row. The words are bound in a list of one: in the inner loop a macro's argument is computed anew for each `i`.
create temp macro ngrams(words, n) as
    [[array_to_string(w[i:i + n - 1], ' ') for i in range(1, len(w) - n + 2)] for w in [words]][1];

-- The share of a list's entries that stood in it before; 0 for an empty list.
create temp macro share_repeated(entries) as 1 - list_unique(entries) / greatest(len(entries), 1) - (len(entries) = 0)::int;

-- All that a message says, in plain words: its content, and names and arguments of its calls.
create temp macro whole(m) as
    plain(concat_ws(chr(10), m.content, array_to_string([call.name || ' ' || call.arguments for call in m.tool_calls], chr(10))));

-- Digests of every five words in a row of some texts, each once. Of a text of more than 400 words the first and the last 200 count.
create temp macro ends_of(words) as case when len(words) > 400 then words[:200] || words[-200:] else words end;
create temp macro runs_of_five(texts) as
    list_distinct([hash(run) for run in flatten([ngrams(ends_of(question_words(text)), 5) for text in texts])]);

-- A conversation up to its last reply, in the words of user and assistant; see clawpipe.learn.evaluation.heldout.conversations.
create temp macro dialogue_digest(messages) as question_digest(array_to_string([
    whole(m) for m in messages[:coalesce(replies_at(messages)[-1], 0)] if m.role in ('user', 'assistant')
], chr(10)));

-- For each of some digests a digest of it and all before it, each made from the one before.
create temp macro beginnings(digests) as
    list_reduce([[d] for d in digests], lambda before, d: before || [hash(before[-1], d[1])], []::ubigint[]);

-- The digests by which copies of a conversation are known: of the whole, and of its beginning up to each reply, since it may have gone on.
create temp macro spoken(messages) as list_filter(
    [{role: m.role, text: without_marks(whole(m))} for m in list_filter(messages, lambda m: m.role in ('user', 'assistant'))],
    lambda m: m.text <> ''
);
create temp macro up_to_replies(said) as
    list_where(beginnings([hash(m.text) for m in said]), [m.role = 'assistant' for m in said]);
create temp macro dialogues_in(messages) as [dialogue_digest(messages)] || up_to_replies(spoken(messages));

-- Whether some message says one of some strings; compared as questions are.
create temp macro says_one_of(messages, strings) as
    list_bool_or(flatten([[contains(text, trim(plain(string))) for string in strings] for text in [whole(m) for m in messages]]));

-- Log-probs that are no measurement: an engine that gave fewer of them than tokens had the rest filled with 0, which claims that
-- these tokens were certain. Honest ones are exactly 0 too, where float32 rounds a probability to 1; but then many are: with a model of
-- 135M parameters none at temperature 1, 1 % at 0.7 and never more than two in a row, 20 to 45 % at 0.3 and up to 28 in a row. So a
-- turn is taken for padded if its last 8 log-probs or more are 0, and hardly any (1 in 20) of the row's other ones is. A row in which
-- all are 0 is padded; were it honest, there would be nothing to learn from tokens that could not have been others.
create temp macro zeros_at_end(values) as len(values) - coalesce(list_max([i for v, i in values if v <> 0]), 0);
create temp macro ends_in_zeros(logprobs, t) as
    t."end" - t.start >= 8 and list_min(logprobs[t."end" - 7:t."end"]) = 0 and list_max(logprobs[t."end" - 7:t."end"]) = 0;
create temp macro sampled_logprobs(logprobs, turns) as [logprobs[t.start + 1:t."end"] for t in turns];
create temp macro outside_of_padding(turn_values) as
    [values[:len(values) - case when zeros_at_end(values) >= 8 then zeros_at_end(values) else 0 end] for values in turn_values];
create temp macro few_zeros(values) as len(list_filter(values, lambda v: v = 0)) * 20 <= len(values);
create temp macro padded_with_zeros(logprobs, turns) as
    list_bool_or([ends_in_zeros(logprobs, t) for t in turns])
    and few_zeros(flatten(outside_of_padding(sampled_logprobs(logprobs, turns))));

-- Why no importance ratio can be taken of recorded log-probs, if none can; see clawpipe.core.contracts.logprobs.
create temp macro fault_of_logprobs(kind, source, temperature, logprobs, turns) as
    case
        when kind = 'none' then 'no log-probs of what was drawn from'
        when kind = 'raw' and temperature <> 1 then 'log-probs not at the sampling temperature'
        when coalesce(kind, case when source <> 'rollout' then 'unknown' end) = 'unknown' and temperature <> 1
        then 'log-probs of unknown kind'
        when padded_with_zeros(logprobs, turns) then 'log-probs padded with zeros'
    end;

-- Numbers by name that a score's evidence holds at a path; null where it holds none, or something else.
create temp macro numbers_at(evidence, path) as list_filter(
    [try_cast(json_extract(evidence, path) as map(varchar, double))],
    lambda found: len(map_keys(found)) > 0 and len(list_filter(map_values(found), lambda value: isfinite(value))) = len(map_keys(found))
)[1];

-- The parts of a reward, by name: the verifier's own `parts`, or its value, and those of other scorers that count in its `reward`. A
-- verifier of weight 0 is no part of the reward, and so has none.
create temp macro parts_of(evidence, scorer, value) as map_from_entries(
    case when try_cast(json_extract(evidence, '$.verifier_weight') as double) = 0 then [] else
        map_entries(coalesce(numbers_at(evidence, '$.parts'), map {scorer: coalesce(numbers_at(evidence, '$.reward')[scorer], value)}))
    end
    || list_filter(
        coalesce(map_entries(numbers_at(evidence, '$.reward')), []),
        lambda part: part.key <> scorer and not list_contains(coalesce(map_keys(numbers_at(evidence, '$.parts')), []), part.key)
    )
);

-- The place of an id in a draw: as good as random, the same on every night, and no two ids share one.
create temp macro lot(id) as ('0x' || sha256(id)[:32])::uhugeint;

-- For each of `length` tokens the number of its turn, from 1; 0 for tokens that the policy did not sample.
create temp macro turn_of(turns, length) as list_resize(flatten([
    repeat([0], greatest(t.start - coalesce(turns[k - 1]."end", 0), 0)) || repeat([k], greatest(t."end" - t.start, 0))
    for t, k in turns
]), length, 0);

-- Of one of the streams of a row, such as its tokens, what belongs to a side of a pair: all of it, or if the pair is of turns its
-- first `prompt` entries and those of the turn.
create temp macro stream_of(stream, prompt, turn) as
    case when turn is null then stream else stream[:prompt] || stream[turn.start + 1:turn."end"] end;

-- The same for a mask, of which the prompt of a turn is no part.
create temp macro mask_of(mask, prompt, turn) as
    case when turn is null then mask else list_resize([]::bool[], prompt, false) || mask[turn.start + 1:turn."end"] end;

-- Whether some pair with the same prompt prefers what this one rejects, and rejects what it prefers.
create temp macro contradicted(asked, chosen, rejected) as
    count(distinct chosen > rejected) over (partition by asked, least(chosen, rejected), greatest(chosen, rejected)) > 1;

-- The side that a score of the whole takes: 1 for a success, -1 for a failure, 0 for neither.
create temp macro side_taken(success, value) as case when success then 1 when success = false then -1 else sign(value) end::tinyint;

-- Feedback that a client sent several times on one captured turn is stored under numbered names, in the order in which it came: the name
-- of the first, and how many times something had been said then.
create temp macro first_said(scorer) as regexp_replace(scorer, '^(imported/capture/user)/[0-9]+$', '\1');
create temp macro times_said(scorer) as coalesce(try_cast(scorer[len(first_said(scorer)) + 2:] as int), 1);

-- Whether what somebody else says of a turn is the opposite of what is said of the whole.
create temp macro disputed(value, own, word) as coalesce(not own and value * word < 0, false);

-- Pairs of turns (k, m): k was blamed, m is the first later one that was praised, and between them the user only ever spoke, and only
-- ever blamed the turns.
create temp macro first_accepted(k, answered, blamed, praised) as list_min([
    m for m in range(k + 1, len(blamed) + 1) if praised[m] and list_bool_and(answered[k:m - 1]) and list_bool_and(blamed[k:m - 1])
]);
create temp macro corrections_in(answered, blamed, praised) as [
    {turn: k, accepted: first_accepted(k, answered, blamed, praised)}
    for k in range(1, len(blamed)) if blamed[k] and first_accepted(k, answered, blamed, praised) is not null
];
