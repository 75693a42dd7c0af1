-- Where queues stand: ready, inactive or neither; judged late, and woken by time (E1, E2, E5).
-- A ready queue stands in the lines of its lanes under its ranks, an inactive one under its spot,
-- and nowhere else; every queue that time alone can bring has an alarm. The top of a lane is in its
-- queue's row.
local lanes = { [0] = {}, {} } -- keys of queues' lanes, by the queue's number

local function lane_of(q, lane)
  local found, number = lanes[lane], q[Q_NUMBER]
  local key = found[number]
  if not key then
    key = at .. (lane == 1 and K_LANE1 or K_LANE0) .. number
    found[number] = key
  end
  return key
end

local function entry_of(number, t)
  return t[T_ORDER] .. pack('>I5', number)
end

-- A pending task waits: in its lane if it is due, else with the delayed.
local function enter(q, lane, entry, due)
  if due > now then
    join(at .. K_DELAYED .. q[Q_NUMBER], pack('B', lane) .. entry, due)
    if q[Q_SOON] < 0 or due < q[Q_SOON] then
      q[Q_SOON] = due
    end
    return
  end
  join(lane_of(q, lane), entry, 0)
  local top = Q_TOP0 + lane
  if q[top] == '' or is_before(entry, q[top]) then
    q[top] = entry
  end
end

local function line_up(number, t, q, due)
  t[T_DUE] = due
  enter(q, t[T_LANE], entry_of(number, t), due)
end

local function find_soon(q)
  local first = call('ZRANGE', at .. K_DELAYED .. q[Q_NUMBER], 0, 0, 'WITHSCORES')
  q[Q_SOON] = tonumber(first[2]) or -1
end

-- The first of a lane leaves it.
local function take_top(q, lane)
  local line = lane_of(q, lane)
  let_join(line)
  call('ZREM', line, q[Q_TOP0 + lane])
  q[Q_TOP0 + lane] = call('ZRANGE', line, 0, 0)[1] or ''
end

-- A task waits no more, wherever it did.
local function leave(q, lane, entry)
  local line, delayed = lane_of(q, lane), at .. K_DELAYED .. q[Q_NUMBER]
  let_join(line)
  let_join(delayed)
  if q[Q_TOP0 + lane] == entry then
    take_top(q, lane)
  elseif call('ZREM', line, entry) == 0 then
    call('ZREM', delayed, pack('B', lane) .. entry)
    find_soon(q)
  end
end

local function is_empty(q)
  return q[Q_TOP0] == '' and q[Q_TOP1] == '' and q[Q_SOON] < 0
end

-- How many tasks wait.
local function pending_of(q)
  local waiting = 0
  for _, line in ipairs({ lane_of(q, 0), lane_of(q, 1), at .. K_DELAYED .. q[Q_NUMBER] }) do
    let_join(line)
    waiting = waiting + call('ZCARD', line)
  end
  return waiting
end

-- C6: what has become due joins its lane; of very many the rest at the next look.
local function ripen(q)
  local delayed = at .. K_DELAYED .. q[Q_NUMBER]
  let_join(delayed)
  local ripe = call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, RIPEN_MOST)
  for _, member in ipairs(ripe) do
    enter(q, byte(member), sub(member, 2), now)
  end
  call('ZREMRANGEBYRANK', delayed, 0, #ripe - 1)
  find_soon(q)
end

-- C3: queue precedence, top task's precedence and priority, turn.
local function rank_under(q, top, discount)
  local rank = NO_RANK
  if not C[C_BY_TURN] then
    rank = sub(top, 1, 10)
    if discount ~= 0 then
      rank = moved(rank, discount)
    end
  end
  local precedence = rules_of(q)[R_PRECEDENCE] + 2147483648
  return pack('>I4c10I7I5', precedence, rank, q[Q_TURN], q[Q_NUMBER])
end

local function ready(lane)
  return lane == 1 and ready1 or ready0
end

local ahead = {} -- the next of each ready line, while nobody joins it

local function put(q, lane, rank)
  local field = Q_RANK0 + lane
  if rank == q[field] then
    return
  end
  if q[field] ~= '' then
    tell(ready(lane), q[field], false)
  end
  if rank ~= '' then
    tell(ready(lane), rank, 0)
    ahead[lane] = nil
  end
  q[field] = rank
end

local function rank(q, discount)
  for lane = 0, 1 do
    local top = q[Q_TOP0 + lane]
    put(q, lane, top == '' and '' or rank_under(q, top, discount))
  end
end

local function unrank(q)
  if q[Q_RANK0] ~= '' then
    put(q, 0, '')
  end
  if q[Q_RANK1] ~= '' then
    put(q, 1, '')
  end
end

local function stand_down(q)
  unrank(q)
  if q[Q_SPOT] ~= '' then
    tell(parked, q[Q_SPOT], false)
    q[Q_SPOT] = ''
  end
  q[Q_STANDING] = NEITHER
end

local function stand_ready(q)
  q[Q_STANDING] = READY
  rank(q, 0)
end

local function stand_inactive(q)
  local precedence = rules_of(q)[R_PRECEDENCE] + 2147483648
  q[Q_STANDING] = INACTIVE
  q[Q_SPOT] = pack('>I4I7I5', precedence, q[Q_PLACE], q[Q_NUMBER])
  tell(parked, q[Q_SPOT], 0)
end

-- E2: its session is over; it waits behind the others of its precedence.
local function park(q)
  C[C_COUNTER] = C[C_COUNTER] + 1
  q[Q_SESSION], q[Q_PLACE] = -1, C[C_COUNTER]
  stand_inactive(q)
end

local function is_over_budget(q, r)
  return r[R_BALANCE] == 0 or (r[R_TOTAL] >= 0 and r[R_TOTAL] <= q[Q_SPENT])
end

local function has_slot(q, r)
  return q[Q_LENT] == 0 and q[Q_IN_FLIGHT] < r[R_SLOTS]
end

-- When the earliest pending task is or was due. Scans: only after acts that judge nobody.
local function first_due(q)
  local first = q[Q_SOON] >= 0 and q[Q_SOON] or nil
  for lane = 0, 1 do
    local line = lane_of(q, lane)
    let_join(line)
    if call('ZCARD', line) > SCAN_MOST then
      return now
    end
    for _, entry in ipairs(call('ZRANGE', line, 0, -1)) do
      local due = due_of(task_of(parts('>I5', entry, 17)))
      first = first and min(first, due) or due
    end
  end
  return first
end

-- 0 if only a person, a finish or an add can change anything.
local function alarm_at(q, r)
  if q[Q_STANDING] ~= NEITHER then
    return max(q[Q_SOON], 0)
  elseif is_empty(q) or not has_slot(q, r) or q[Q_PAUSED] or q[Q_RETIRED] ~= '' then
    return 0
  elseif q[Q_TOP0] == '' and q[Q_TOP1] == '' then
    return max(q[Q_NEXT_READY], q[Q_SOON])
  elseif q[Q_NEXT_READY] > now then
    return q[Q_NEXT_READY]
  end
  return max(q[Q_NEXT_READY], first_due(q))
end

local function set_alarm(q, instant)
  if instant == q[Q_ALARM] then
    return
  end
  q[Q_ALARM] = instant
  tell(alarms, pack('>I5', q[Q_NUMBER]), instant > 0 and instant)
end

-- E5: set aside with its tasks; a budget never overrides another reason.
local function retire(q, reason)
  if q[Q_RETIRED] == '' then
    C[C_HELD] = C[C_HELD] + pending_of(q)
  elseif reason == 'budget' or reason == q[Q_RETIRED] then
    return
  end
  q[Q_RETIRED] = reason
  note('queue-retired', q[Q_KEY], reason)
  stand_down(q)
  set_alarm(q, 0)
end

-- C9: whether the first due task of a lane opens its queue's session by itself.
local function opens(q)
  local below = C[C_OPENS_BELOW]
  return below ~= '' and (is_below(q[Q_TOP0], below) or is_below(q[Q_TOP1], below))
end

-- E1: retired, to the back of the inactive FIFO of its precedence, or ready.
local function judge(q, r)
  local session, is_over = q[Q_SESSION], r[R_HOLD]
  if session >= 0 then
    is_over = session >= r[R_BALANCE]
  end
  if is_over_budget(q, r) then
    retire(q, 'budget')
  elseif is_over and not opens(q) then
    park(q)
  else
    q[Q_SESSION] = is_over and 0 or max(session, 0)
    stand_ready(q)
  end
end

-- E1: what stands keeps its place while it could be served; E2: empty ends a session.
local function look_at(q, judges)
  local r = rules_of(q)
  if q[Q_SOON] >= 0 and q[Q_SOON] <= now then
    ripen(q)
  end
  local has_due = q[Q_TOP0] ~= '' or q[Q_TOP1] ~= ''
  local is_free = q[Q_RETIRED] == '' and not q[Q_PAUSED] and has_slot(q, r)
  if has_due and is_free and q[Q_NEXT_READY] <= now then
    if q[Q_STANDING] == READY then
      rank(q, 0)
    elseif judges and q[Q_STANDING] == NEITHER then
      judge(q, r)
    end
  else
    if q[Q_STANDING] ~= NEITHER then
      stand_down(q)
    end
    if is_empty(q) and q[Q_IN_FLIGHT] == 0 and q[Q_NAMED] == 0 then
      q[Q_SESSION] = -1
    end
  end
  set_alarm(q, alarm_at(q, r))
end

-- C9: a focus task does not wait for its queue's turn among the inactive.
local function hasten(q)
  if q[Q_STANDING] == INACTIVE and opens(q) then
    stand_down(q)
    judge(q, rules_of(q))
  end
end

-- E1: judged at once, whoever stands or not.
local function touch(q)
  look_at(q, true)
  hasten(q)
end

-- E5, I2: returned and judged at once; its pending tasks make a finished crawl run.
local function bring_back(q)
  note('queue-returned', q[Q_KEY], q[Q_RETIRED])
  q[Q_RETIRED] = ''
  C[C_HELD] = C[C_HELD] - pending_of(q)
  if not is_empty(q) then
    worked()
  end
  touch(q)
end

-- D1: next-ready never moves back.
local function postpone(q, instant, why)
  if instant > q[Q_NEXT_READY] then
    q[Q_NEXT_READY], q[Q_WHY] = instant, why
  end
end

local function least_delay(q, r)
  return to_ms(max(r[R_LEAST], min(q[Q_CRAWL_DELAY], r[R_RESPECT])))
end

-- D7: the last delay, or the least if none.
local function delay_of(q, r)
  return q[Q_LAST_DELAY] >= 0 and to_ms(q[Q_LAST_DELAY]) or least_delay(q, r)
end

-- D1: least milliseconds between two leases, or nil: only ends count. `visits_per_second` is a
-- promise over all slots of a queue, so its pace counts with one slot as well.
local function gap_of(q, r)
  if r[R_FROM_START] or r[R_SLOTS] > 1 then
    return max(least_delay(q, r), r[R_PACE])
  end
  return r[R_PACE] > 0 and r[R_PACE] or nil
end

-- D1: 1/visits_per_second passes between two leases, whatever the delays.
local function keep_pace(q, r)
  if r[R_PACE] > 0 and q[Q_LAST_START] >= 0 then
    postpone(q, q[Q_LAST_START] + r[R_PACE], 'delay')
  end
end
