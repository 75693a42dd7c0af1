-- include: add_task
-- add: add tasks to a crawl.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the batch (see decode_batch). ARGV[6]: the heads of the tasks. ARGV[7]: their texts.
-- Returns one letter per task, as add_task does; "": there is no such crawl; nil: the crawl's rules
-- have another epoch.
if not C then -- I1: an add creates no crawl, so one that was removed stays so
  return ''
elseif is_stale() then
  return false
end
check_memory()
local batch, heads, texts, answers = decode_batch(ARGV[5]), ARGV[6], ARGV[7], {}
for position = 1, #heads, HEAD_SIZE do
  answers[#answers + 1] = add_task(batch, heads, position, texts)
end
check_limits()
commit()
return table.concat(answers)
