-- include: event_positions
-- read_event_log: read the store's events and those that workers published.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the number of the last event the caller has; behind the end of the log, it is read from
-- its beginning. ARGV[6]: how many at most.
-- Returns the highest number so far; the store's events, each as msgpack; the batches, each as
-- `publish` stored it.
if not C then
  return { 0, {}, {} }
end
local limit = tonumber(ARGV[6])
local after = tonumber(ARGV[5]) > C[C_LAST_EVENT] and '0' or ARGV[5]
local from = first_event_after(tonumber(after))
local own = call('LRANGE', prefix .. K_EVENTS, from, from + limit - 1)
local batches, count = {}, 0
repeat
  local part = call('ZRANGEBYSCORE', prefix .. K_PUBLISHED, '(' .. after, '+inf', 'LIMIT', 0, 20)
  for _, batch in ipairs(part) do
    local row = decode(batch)
    batches[#batches + 1] = batch
    count, after = count + row[5], string.format('%.0f', row[1])
  end
until #part < 20 or count >= limit + 1000
return { C[C_LAST_EVENT], own, batches }
