-- include: restore_items
-- restore: insert items of an export.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the batch (see decode_batch). ARGV[6]: msgpack of the items, each with its kind first
-- (see lib/restore_items.lua). ARGV[7..]: two values per task: its fingerprint and its row.
-- Returns how many items were new; -1: the crawl is not being restored; nil: the crawl's rules have
-- another epoch.
local items = decode(ARGV[6])
if is_stale() then
  return false
elseif items[1][1] ~= 'crawl' and not is_restoring() then
  return -1
end
open_crawl()
local batch, position, new_items = decode_batch(ARGV[5]), 7, 0
for _, item in ipairs(items) do
  if item[1] == 'crawl' then
    new_items = new_items + restore_crawl(item)
  elseif item[1] == 'queue' then
    new_items = new_items + restore_queue(batch, item[2], item[3], item[4], item[5])
  elseif item[1] == 'task' then
    new_items = new_items + restore_task(batch, ARGV[position], ARGV[position + 1])
    position = position + 2
  else
    new_items = new_items + restore_end(item[2], item[3], item[4], item[5])
  end
end
commit()
return new_items
