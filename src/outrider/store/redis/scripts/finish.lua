-- finish: 5 the batch of all links, 6 the verdicts, 7 heads and 8 texts of the links. A word a
-- verdict: "lost", "again", or the state's digit and a letter a link; nil: other rules hold.
if is_stale() then
  return false
end
ask_for_room()
local batch, heads, texts, place, answers = read_batch(ARGV[5]), ARGV[7], ARGV[8], 1, {}
local at_verdict, DIGITS = 0, { [0] = '0', '1', '2', '3', '4' }
while at_verdict >= 0 do
  local v = { values_of(ARGV[6], VERDICT_FIELDS, at_verdict) }
  at_verdict = v[1]
  local number, after = v[V_TASK], place + v[V_LINKS] * HEAD_SIZE
  local t = held_by(number, v[V_TOKEN])
  if not t then
    answers[#answers + 1] = 'lost'
  elseif t[T_STATE] ~= LEASED then
    answers[#answers + 1] = 'again'
  else
    local letters = {}
    for link = place, after - 1, HEAD_SIZE do -- H6: links first, in order
      letters[#letters + 1] = add(batch, heads, link, texts)
    end
    apply(number, t, v)
    check_limits()
    answers[#answers + 1] = DIGITS[t[T_STATE]] .. table.concat(letters)
  end
  place = after
end
if C then
  commit()
end
return answers
