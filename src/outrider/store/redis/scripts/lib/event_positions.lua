-- include: crawl
-- The place of an event in the crawl's log, whose numbers have holes where workers published.

-- Return the index in the log of the first event with a higher number.
local function first_event_after(number)
  local log = prefix .. K_EVENTS
  local low, high = 0, call('LLEN', log)
  local newest = high > 0 and decode(call('LINDEX', log, -1))[1] or 0
  if newest <= number then -- what most callers find
    return high
  end
  while low < high do
    local middle = floor((low + high) / 2)
    if decode(call('LINDEX', log, middle))[1] > number then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
