-- include: queue_view
-- read_queues_in_order: read what views show of queues, in the order of their keys or of their wake
-- times.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: how many at most. ARGV[6]: "key", and ARGV[7] and ARGV[8] the first key and the one
-- before which to end; or "wake", and ARGV[7] and ARGV[8] the wake time and the number of the queue
-- after which to begin.
-- Returns the crawl's row, the time, whether there are more (1 or 0), and the four values of
-- append_queue_view per queue; nil and the time if there is no crawl.
if not C then
  return { false, now }
end
local most, found, numbers = tonumber(ARGV[5]), { encode(C), now, 0 }, {}

-- The place in the wake times behind a time and a queue.
local function place_behind(at, number)
  local low, high = call('ZCOUNT', wake_times, '-inf', '(' .. at), call('ZCOUNT', wake_times, '-inf', at)
  while low < high do -- queues of the same wake time are in order of their numbers
    local middle = floor((low + high) / 2)
    if unpack_bytes('>I5', call('ZRANGE', wake_times, middle, middle)[1]) <= number then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

if ARGV[6] == 'key' then
  local names = prefix .. K_QUEUE_NAMES
  local members =
    call('ZRANGEBYLEX', names, '[' .. ARGV[7], '(' .. ARGV[8], 'LIMIT', 0, most + 1)
  for position = 1, min(most, #members) do
    numbers[position] = unpack_bytes('>I5', members[position], #members[position] - 4)
  end
  found[3] = #members > most and 1 or 0
elseif C[C_STATUS] ~= 'cancelled' then -- I3: the queues of a cancelled crawl are empty
  local at, number = tonumber(ARGV[7]), tonumber(ARGV[8])
  if at <= now then
    at, number = now, 2 ^ 40
  end
  local first = place_behind(at, number)
  local members = call('ZRANGE', wake_times, first, first + most - 1)
  for position = 1, #members do
    numbers[position] = unpack_bytes('>I5', members[position])
  end
  found[3] = first + most < call('ZCARD', wake_times) and 1 or 0
end
for _, number in ipairs(numbers) do
  append_queue_view(queue_by_number(number), found)
end
return found
