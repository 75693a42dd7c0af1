-- What readers are shown of a queue: its row, how many are delayed, and the text of its next task.
local function next_of(q)
  local lane0, lane1, soon = q[Q_TOP0], q[Q_TOP1], q[Q_SOON]
  local first = lane0
  if first == '' or (lane1 ~= '' and is_before(lane1, first)) then
    first = lane1
  end
  if soon >= 0 and (first == '' or soon <= now) then
    local delayed = at .. K_DELAYED .. q[Q_NUMBER]
    local ripe = call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, RIPEN_MOST)
    if #ripe == 0 and first == '' then
      ripe = call('ZRANGEBYSCORE', delayed, soon, soon, 'LIMIT', 0, RIPEN_MOST)
    end
    for _, member in ipairs(ripe) do
      local entry = sub(member, 2)
      if first == '' or is_before(entry, first) then
        first = entry
      end
    end
  end
  return first
end

local function shown(q, into)
  into[#into + 1] = encode(q)
  into[#into + 1] = pending_of(q)
  into[#into + 1] = call('ZCOUNT', at .. K_DELAYED .. q[Q_NUMBER], '(' .. now, '+inf')
  local first = next_of(q)
  into[#into + 1] = first ~= '' and url_of(task_of(parts('>I5', first, 17))) or ''
end
