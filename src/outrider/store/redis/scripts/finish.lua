-- include: apply_verdict
-- finish: apply verdicts, after adding their links.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the batch of all links (see decode_batch). ARGV[6]: the verdicts, each the fields of a
-- VerdictRow. ARGV[7]: the heads of all links. ARGV[8]: their texts.
-- Returns a word per verdict: "lost" (the lease is not held any more), "again" (it was finished
-- before), or the digit of the task's new state and a letter per link, as add_task returns it; nil:
-- the crawl's rules have another epoch.
if is_stale() then
  return false
end
check_memory()
local batch, heads, texts, position, answers = decode_batch(ARGV[5]), ARGV[7], ARGV[8], 1, {}
local offset, DIGITS = 0, { [0] = '0', '1', '2', '3', '4' }
while offset >= 0 do
  local v = { unpack_values(ARGV[6], VERDICT_FIELDS, offset) }
  offset = v[1]
  local number, after = v[V_TASK], position + v[V_LINKS] * HEAD_SIZE
  local t = lease_by_token(number, v[V_TOKEN])
  if not t then
    answers[#answers + 1] = 'lost'
  elseif t[T_STATE] ~= LEASED then
    answers[#answers + 1] = 'again'
  else
    local letters = {}
    for link = position, after - 1, HEAD_SIZE do -- H6: links first, in order
      letters[#letters + 1] = add_task(batch, heads, link, texts, number)
    end
    apply_verdict(number, t, v)
    check_limits()
    answers[#answers + 1] = DIGITS[t[T_STATE]] .. table.concat(letters)
  end
  position = after
end
if C then
  commit()
end
return answers
