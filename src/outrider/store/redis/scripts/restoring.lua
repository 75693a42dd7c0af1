-- A crawl comes back from what was saved of it: queues and tasks stand where they stood (I5). A
-- queue that stood tells by its `place` where: below 0 among the ready, above 0 there in the
-- inactive FIFO; it stands again as soon as it has a due task, since nothing may stand that cannot
-- be served.
local function is_restoring()
  return C and C[C_STATUS] == 'paused' and C[C_REASON] == RESTORING
end

local function begin(saved)
  if is_restoring() then
    return 0
  end
  C[C_CREATED], C[C_TOLD] = saved[2], saved[3]
  obey(saved[4], saved[5])
  if saved[6] ~= '' then
    call('SET', at .. K_SETTINGS, saved[6])
  end
  for _, mode in ipairs(saved[7]) do
    call('SADD', at .. K_MODES, mode[1])
    for place, root in ipairs(mode[2]) do
      call('ZADD', at .. K_ROOTS .. mode[1], 'NX', place, root)
    end
  end
  C[C_STATUS], C[C_REASON] = 'paused', RESTORING
  return 1
end

local function may_stand(q)
  local is_free = q[Q_RETIRED] == '' and not q[Q_PAUSED] and has_slot(q, rules_of(q))
  return is_free and q[Q_NEXT_READY] <= now
end

-- `saved` holds pairs of a field's place in the row and its value; `ruling` what was said of it.
local function restore_queue(batch, key, saved, stood, ruling)
  if find_queue(batch, key) then
    return 0
  end
  local counter, q = C[C_COUNTER], new_queue(batch, key)
  q[Q_RULES] = rules_number(batch, ruling)
  for place = 1, #saved, 2 do
    q[saved[place]] = saved[place + 1]
  end
  C[C_COUNTER] = max(counter, q[Q_TURN], q[Q_PLACE])
  if stood == NEITHER or not may_stand(q) then
    q[Q_PLACE] = 0
  elseif stood == READY then
    q[Q_PLACE] = -1
  end
  return 1
end

local function stand_again(q)
  if q[Q_PLACE] < 0 then
    q[Q_PLACE] = 0
    stand_ready(q)
  else
    stand_inactive(q)
  end
end

local function alarm_for(q, due)
  local instant = 0
  if q[Q_STANDING] ~= NEITHER then
    instant = due > now and due or 0
  elseif not q[Q_PAUSED] and q[Q_RETIRED] == '' then
    instant = max(q[Q_NEXT_READY], due)
  end
  if instant > 0 and (q[Q_ALARM] == 0 or instant < q[Q_ALARM]) then
    set_alarm(q, instant)
  end
end

local function wait_again(number, t, q)
  local due = due_of(t)
  enter(q, t[T_LANE], entry_of(number, t), due)
  if due <= now then
    if q[Q_STANDING] == READY then
      rank(q, 0)
    elseif q[Q_STANDING] == NEITHER and q[Q_PLACE] ~= 0 and may_stand(q) then
      stand_again(q)
    end
  end
  alarm_for(q, due)
end

-- D7: its queue was told before this visit, so the visit's end is learned from the task.
local function visited_since(t, q)
  local ended = min(now, t[T_FINISHED] < 0 and due_of(t) or t[T_FINISHED])
  q[Q_LAST_START], q[Q_LAST_END] = t[T_CLAIMED], max(q[Q_LAST_END], ended)
  postpone(q, ended + delay_of(q, rules_of(q)), 'delay')
  keep_pace(q, rules_of(q))
  if q[Q_NEXT_READY] > now then
    stand_down(q)
    set_alarm(q, alarm_at(q, rules_of(q)))
  end
end

-- `row` is a TaskRow but for its queue and kind, which are places in the batch, and the moment it
-- was discovered.
local function restore_task(batch, id, row)
  if find(K_KNOWN, C_KNOWN_BUCKETS, id) then
    return 0
  end
  local number, t = C[C_COUNT] + 1, read(row)
  local q = find_queue(batch, t[T_QUEUE])
  t[T_DISCOVERED] = t[T_DISCOVERED] - C[C_CREATED]
  C[C_COUNT], marked[q[Q_NUMBER]] = number, q
  t[T_QUEUE], t[T_KIND] = q[Q_NUMBER], kind_in(batch, t[T_KIND])
  learn(K_KNOWN, C_KNOWN_BUCKETS, id, number)
  tasks[number], born[number] = t, t
  count(t[T_KIND], t[T_STATE], 1)
  count_in(q, t[T_STATE], 1)
  if t[T_STATE] == PENDING then
    wait_again(number, t, q)
  end
  if t[T_CLAIMED] > q[Q_LAST_START] then
    visited_since(t, q)
  end
  return 1
end

-- `saved` holds pairs of a field's place in the crawl's row and its value.
local function finish_restoring(saved, counted_, line, logged)
  if not is_restoring() then
    return 0
  end
  local counter, arrivals = C[C_COUNTER], C[C_ARRIVALS]
  for place = 1, #saved, 2 do
    C[saved[place]] = saved[place + 1]
  end
  C[C_COUNTER] = max(counter, C[C_COUNTER])
  C[C_ARRIVALS] = max(arrivals, C[C_ARRIVALS], C[C_COUNT])
  C[C_LOGGED] = max(C[C_LOGGED], logged)
  call('DEL', at .. K_OUTCOMES, at .. K_TIMELINE)
  for place = 1, #counted_, 2 do
    outcomes[counted_[place]] = counted_[place + 1]
  end
  for _, moment in ipairs(line) do
    call('RPUSH', at .. K_TIMELINE, encode(moment))
  end
  note('crawl-restored', name, C[C_STATUS])
  if C[C_PENDING] > C[C_HELD] then -- told as pending, and done before the end was told
    worked()
  end
  return 1
end
