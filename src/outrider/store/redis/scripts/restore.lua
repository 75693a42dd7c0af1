-- restore: 5 the batch, 6 the items, each with its kind first; then two arguments a task: its
-- fingerprint and its row. Answers with how many were new; -1: it is over; nil: other rules hold.
local items = decode(ARGV[6])
if is_stale() then
  return false
elseif items[1][1] ~= 'crawl' and not is_restoring() then
  return -1
end
open()
local batch, place, fresh = read_batch(ARGV[5]), 7, 0
for _, item in ipairs(items) do
  if item[1] == 'crawl' then
    fresh = fresh + begin(item)
  elseif item[1] == 'queue' then
    fresh = fresh + restore_queue(batch, item[2], item[3], item[4], item[5])
  elseif item[1] == 'task' then
    fresh = fresh + restore_task(batch, ARGV[place], ARGV[place + 1])
    place = place + 2
  else
    fresh = fresh + finish_restoring(item[2], item[3], item[4], item[5])
  end
end
commit()
return fresh
