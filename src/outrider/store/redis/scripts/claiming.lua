-- Tasks are lent: the claim algorithm of ARCHITECTURE.md (C3 to C7, E2, H1), and by name (D5).
local function charge(q, cost)
  q[Q_SPENT] = q[Q_SPENT] + cost
  if q[Q_SESSION] >= 0 then
    q[Q_SESSION] = q[Q_SESSION] + cost
  end
  q[Q_LAST_COST] = cost
  q[Q_COST_SUM], q[Q_COST_COUNT] = q[Q_COST_SUM] + cost, q[Q_COST_COUNT] + 1
end

-- E1: what time brought is judged in (instant, queue number) order.
local function wake(limit)
  settle(alarms)
  local over = call('ZRANGEBYSCORE', alarms, '-inf', now, 'LIMIT', 0, limit)
  if #over > 0 then
    call('ZREMRANGEBYRANK', alarms, 0, #over - 1)
  end
  for _, member in ipairs(over) do
    queue_of(parts('>I5', member))[Q_ALARM] = 0
  end
  for _, member in ipairs(over) do
    look_at(queue_of(parts('>I5', member)), true)
  end
  return #over
end

-- The first of a ready line. While nobody joins it, more and more of its next are read at once.
local function first_ready(lane)
  local line, found = lane == 1 and ready1 or ready0, ahead[lane]
  if found then
    local gone, place = lines[line], found.place
    local member = found[place]
    while gone and member and gone[member] == false do
      place = place + 1
      member = found[place]
    end
    found.place = place
    if member or #found == 0 then
      return member
    end
  end
  settle(line)
  local most = found and min(#found * 4, AHEAD_MOST) or 1
  found = call('ZRANGE', line, 0, most - 1)
  found.place, ahead[lane] = 1, found
  return found[1]
end

local has_parked -- nil: to be asked

-- E2: the head of the best inactive FIFO; one at its cap is passed over (C5).
local function best_parked(taken, cap)
  local place = 0
  if lines[parked] then
    settle(parked)
    has_parked = nil
  end
  if has_parked == nil then
    has_parked = call('ZCARD', parked) > 0
  end
  if not has_parked then
    return nil
  end
  while true do
    local spot = call('ZRANGE', parked, place, place)[1]
    if not spot then
      return nil
    end
    local precedence, _, number = parts('>I4I7I5', spot)
    if cap == 0 or (taken[number] or 0) < cap then
      return number, precedence, spot
    end
    place = place + 1
  end
end

local function is_served(first, precedence)
  return first and parts('>I4', first) <= precedence
end

-- E2: the best head opens a session; over its budget it retires instead.
local function activate(number, spot, times)
  local q = queue_of(number)
  tell(parked, spot, false)
  if q[Q_SPOT] ~= spot then -- an entry counts only while its queue has it
    return
  elseif is_over_budget(q, rules_of(q)) then
    retire(q, 'budget')
  else
    stand_down(q)
    q[Q_SESSION], q[Q_STANDING] = 0, READY
    rank(q, C[C_DISCOUNT] * times)
  end
end

-- What whoever holds a lease must know: the task's row, and its queue's as it was read: how it gets
-- on with its host does not change here.
local function hand_out(leases, number, t, q)
  local row = encode(t)
  born[number] = row
  leases[#leases + 1] = number
  leases[#leases + 1] = row
  leases[#leases + 1] = as_read[q[Q_NUMBER]]
end

-- H1, E3, C3, D1: token, deadline, charge, turn, next-ready; then judged again. Every visit begins
-- here, so `move` is written out.
local function lease(leases, q, lane, request)
  local r, number = rules_of(q), parts('>I5', q[Q_TOP0 + lane], 17)
  local t = task_of(number)
  local field = t[T_KIND] * 8
  take_top(q, lane)
  C[C_COUNTER], C[C_PENDING], C[C_LEASED] = C[C_COUNTER] + 1, C[C_PENDING] - 1, C[C_LEASED] + 1
  counted[field] = (counted[field] or 0) - 1
  counted[field + LEASED] = (counted[field + LEASED] or 0) + 1
  t[T_STATE], t[T_TOKEN], t[T_WORKER], t[T_CLAIMED] = LEASED, next_token(), request.worker, now
  q[Q_TURN], q[Q_LAST_START], q[Q_IN_FLIGHT] = C[C_COUNTER], now, q[Q_IN_FLIGHT] + 1
  charge(q, t[T_COST])
  if request.lends then
    t[T_LENT], q[Q_LENT] = true, q[Q_LENT] + 1
  end
  join(deadlines, pack('>I5', number), now + request.lease_for)
  hand_out(leases, number, t, q)
  stand_down(q)
  if q[Q_ALARM] ~= 0 then
    set_alarm(q, 0)
  end
  local gap = gap_of(q, r)
  if gap then
    postpone(q, now + gap, 'delay')
    if has_slot(q, r) then
      look_at(q, true)
    end
  end
end

-- C7: in the claim that lends it, while it has due tasks and may spend.
local function go_on(q)
  local r = rules_of(q)
  local has_due = q[Q_TOP0] ~= '' or q[Q_TOP1] ~= ''
  if has_due and q[Q_SESSION] < r[R_BALANCE] and not is_over_budget(q, r) then
    q[Q_STANDING] = READY
  end
end

-- C5: what was taken of a queue in this claim puts it back, or out.
local function compete(q, times, request)
  if request.lends then
    go_on(q)
  end
  if q[Q_STANDING] == READY then
    if times == request.cap then
      unrank(q)
    else
      rank(q, C[C_DISCOUNT] * times)
    end
  end
end

-- C4, E2: activate, or the lane to lease from; nothing ends the claim.
local function pick(request, taken)
  local first, second = first_ready(0), first_ready(1)
  local head, precedence, spot
  if has_parked ~= false or lines[parked] then
    head, precedence, spot = best_parked(taken, request.cap)
  end
  if head and not is_served(first, precedence) and not is_served(second, precedence) then
    activate(head, spot, taken[head] or 0)
    return true
  end
  local lane, streak = request.lane, request.streak
  if streak >= C[C_BURST] then
    lane, streak = 1 - lane, 0
  end
  local member = lane == 1 and second or lane == 0 and first
  if not member then
    lane, streak, member = 1 - lane, 0, first or second
  end
  if not member then
    return false
  end
  local q = queue_of(parts('>I5', member, 22))
  if q[Q_RANK0 + lane] ~= member then -- an entry counts only while its queue has it
    tell(ready(lane), member, false)
    return true
  end
  request.lane, request.streak = lane, streak + 1
  return true, q
end

local function lend(request, taken)
  local leases, given = {}, 0
  local counts_takes = request.cap > 0 or C[C_DISCOUNT] ~= 0 or request.lends
  for number, times in pairs(taken) do
    compete(queue_of(number), times, request)
  end
  while given < request.limit do
    local goes_on, q = pick(request, taken)
    if not goes_on then
      break
    end
    if q then
      lease(leases, q, request.lane, request)
      given = given + 1
      if counts_takes then
        local times = (taken[q[Q_NUMBER]] or 0) + 1
        taken[q[Q_NUMBER]] = times
        compete(q, times, request)
      end
    end
  end
  for number in pairs(taken) do
    local q = queue_of(number)
    if q[Q_STANDING] == READY then
      if request.lends then
        stand_down(q)
      else
        rank(q, 0)
      end
    end
  end
  return leases
end

-- D5: token, deadline and charge; its queue keeps its turn and its place in time.
local function lease_named(leases, number, t, q, request)
  if q[Q_STANDING] == READY then -- what it may spend has changed, so it is judged anew
    stand_down(q)
  end
  leave(q, t[T_LANE], entry_of(number, t))
  move(number, t, q, LEASED)
  t[T_NAMED] = true
  q[Q_IN_FLIGHT], q[Q_NAMED] = q[Q_IN_FLIGHT] - 1, q[Q_NAMED] + 1
  charge(q, t[T_COST])
  t[T_TOKEN], t[T_WORKER] = next_token(), request.worker
  join(deadlines, pack('>I5', number), now + request.lease_for)
  hand_out(leases, number, t, q)
  touch(q)
end

local function lend_named(request)
  local leases = {}
  for _, id in ipairs(request.names) do
    local number = find(K_KNOWN, C_KNOWN_BUCKETS, id)
    local t = number and #leases < request.limit * 3 and task_of(number)
    if t and t[T_STATE] == PENDING and due_of(t) <= now then
      local q = queue_of(t[T_QUEUE])
      local is_free = q[Q_RETIRED] == '' and not q[Q_PAUSED]
      if is_free and not is_over_budget(q, rules_of(q)) then
        lease_named(leases, number, t, q, request)
      end
    end
  end
  return leases
end

-- I2: nothing leased, no unretired queue has a pending task.
local function close_run()
  if C[C_COUNT] > 0 and C[C_LEASED] == 0 and C[C_PENDING] <= C[C_HELD] then
    close()
  end
end

-- C6: milliseconds to the earliest deadline or alarm; -1 if time alone brings nothing.
local function wake_in()
  if C[C_STATUS] ~= 'running' then
    return -1
  end
  settle_all()
  for _, line in ipairs({ ready0, ready1, parked }) do
    if call('ZCARD', line) > 0 then
      return 0
    end
  end
  local first
  for _, line in ipairs({ alarms, deadlines }) do
    local instant = tonumber(call('ZRANGE', line, 0, 0, 'WITHSCORES')[2])
    first = instant and min(first or instant, instant) or first
  end
  return first and max(0, first - now) or -1
end
