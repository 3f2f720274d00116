-- Check digits, named by the rules: what a pattern cannot tell.

-- Payment cards (ISO/IEC 7812-1): every second digit from the right is doubled, its digits added; the sum ends in 0.
create temp macro luhn(number) as list_sum([
    case when i % 2 = 1 then d::int else d::int * 2 - case when d::int > 4 then 9 else 0 end end
    for d, i in string_split(reverse(regexp_replace(number, '[^0-9]', '', 'g')), '')
]) % 10 = 0;

-- Bank accounts (ISO 7064): the first four characters go to the end, letters count from A = 10; the number is 1 modulo 97.
create temp macro iban(account) as list_reduce(
    [
        case when c between '0' and '9' then c::int else ascii(c) - 55 end
        for c in string_split(replace(account, ' ', '')[5:] || account[:4], '')
    ],
    lambda rest, value: (rest * case when value > 9 then 100 else 10 end + value) % 97,
    0
) = 1;

-- A key is drawn at random: its characters differ (bits by character), which those of names and of padding do less.
create temp macro random(value) as list_aggregate(string_split(value, ''), 'entropy') > 3.3;
