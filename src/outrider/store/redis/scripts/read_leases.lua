-- include: index
-- read_leases: read leases in the order they were made (H1). The first call that reads a page orders
-- all leases of the crawl; from then on claims and ends of leases keep that order, at a small cost.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: a task's number, or ""; ARGV[6]: a fingerprint, or "". If both are "", ARGV[7] and
-- ARGV[8]: the turn after which, and how many at most.
-- Returns the crawl's row, the time, and five values per lease: the task's number, its row, its
-- queue's row, its turn (0: by itself) and its deadline; nil and the time if there is no crawl.
if not C then
  return { false, now }
end
local found = { encode(C), now }
if C[C_STATUS] == 'cancelled' then -- I3
  return found
end
-- A lease made by an earlier build has no turn: it comes before all others.
local function order_leases()
  for position, member in ipairs(call('ZRANGE', deadlines, 0, -1)) do
    local turn = task_by_number(unpack_bytes('>I5', member))[T_LEASE_TURN]
    add_member(lease_order, member, turn > 0 and turn or position)
  end
  flush_additions(lease_order)
  C[C_LISTS_LEASES] = true
  call('SET', prefix .. K_CRAWL, encode(C))
end
local function append(member, turn)
  local number = unpack_bytes('>I5', member)
  local row = call('HGET', chunk_key(K_TASKS, number), number)
  local queue = decode_row(row)[T_QUEUE]
  found[#found + 1] = number
  found[#found + 1] = row
  found[#found + 1] = call('HGET', chunk_key(K_QUEUES, queue), queue)
  found[#found + 1] = turn
  found[#found + 1] = call('ZSCORE', deadlines, member)
end
if ARGV[5] ~= '' or ARGV[6] ~= '' then
  local number = tonumber(ARGV[5]) or index_find(K_KNOWN, C_KNOWN_BUCKETS, ARGV[6])
  local member = number and pack('>I5', number)
  if member and call('ZSCORE', deadlines, member) then
    append(member, 0)
  end
else
  if not C[C_LISTS_LEASES] then
    order_leases()
  end
  local after, most = '(' .. ARGV[7], tonumber(ARGV[8])
  local page = call('ZRANGEBYSCORE', lease_order, after, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for position = 1, #page, 2 do
    append(page[position], page[position + 1])
  end
end
return found
