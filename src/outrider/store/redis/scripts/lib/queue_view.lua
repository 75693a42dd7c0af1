-- include: index
-- What a view shows of a queue.
-- The entry of the best due task, or of the first delayed one.
local function next_entry(q)
  local lane0, lane1, next_due = q[Q_TOP0], q[Q_TOP1], q[Q_NEXT_DUE]
  local first = lane0
  if first == '' or (lane1 ~= '' and is_before(lane1, first)) then
    first = lane1
  end
  if next_due >= 0 and (first == '' or next_due <= now) then
    local delayed = prefix .. K_DELAYED .. q[Q_NUMBER]
    local due_members = call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, MAX_PROMOTED)
    if #due_members == 0 and first == '' then
      due_members = call('ZRANGEBYSCORE', delayed, next_due, next_due, 'LIMIT', 0, MAX_PROMOTED)
    end
    for _, member in ipairs(due_members) do
      local entry = sub(member, 2)
      if first == '' or is_before(entry, first) then
        first = entry
      end
    end
  end
  return first
end

-- Append four values: the row, how many tasks are pending, how many of them delayed, the URL of the
-- next.
local function append_queue_view(q, into)
  into[#into + 1] = encode(q)
  into[#into + 1] = pending_count(q)
  into[#into + 1] = call('ZCOUNT', prefix .. K_DELAYED .. q[Q_NUMBER], '(' .. now, '+inf')
  local first = C[C_STATUS] ~= 'cancelled' and next_entry(q) or '' -- I1: it may be removed already
  into[#into + 1] = first ~= '' and url_of(task_by_number(unpack_bytes('>I5', first, 17))) or ''
end
