-- include: add_task
-- add: add tasks to a crawl.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the batch (see decode_batch). ARGV[6]: the heads of the tasks. ARGV[7]: their texts.
-- Returns one letter per task, as add_task does; nil: the crawl's rules have another epoch.
if is_stale() then
  return false
end
open_crawl()
local batch, heads, texts, answers = decode_batch(ARGV[5]), ARGV[6], ARGV[7], {}
for position = 1, #heads, HEAD_SIZE do
  answers[#answers + 1] = add_task(batch, heads, position, texts)
end
check_limits()
commit()
return table.concat(answers)
