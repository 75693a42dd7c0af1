-- Links become tasks: known once, in line at once (B3, B4, C2).
-- `batch` tells what its tasks have in common: keys, their digests and rules, rules, and kinds. The
-- heads of tasks are one string, their texts another: strings are dear, and most tasks are known.
local HEAD = '>BI2I4I4I6I2I8I4I4I4I4I4' -- after the fingerprint and what to do if it is known
local HEAD_SIZE = HEAD_BYTES

local function rules_number(batch, place)
  local ruling = batch.rulings[place]
  local number = tonumber(call('HGET', at .. K_RULED, ruling))
  if not number then
    number = call('HLEN', at .. K_RULED) + 1
    call('HSET', at .. K_RULED, ruling, number)
    call('HSET', at .. K_ORDERS, number, encode(batch.orders[place]))
    call('HSET', at .. K_RULINGS, number, ruling)
  end
  return number
end

local function kind_number(kind)
  local id = encode(kind)
  local number = tonumber(call('HGET', at .. K_KINDS, id))
  if not number then
    number = call('HLEN', at .. K_KINDS) + 1
    call('HSET', at .. K_KINDS, id, number)
    call('HSET', at .. K_KIND_NAMES, number, id)
  end
  return number
end

local function kind_in(batch, place)
  local kinds = batch.kind_numbers
  kinds[place] = kinds[place] or kind_number(batch.kinds[place])
  return kinds[place]
end

local function find_queue(batch, place)
  local found = batch.queues[place]
  if found == nil then
    local number = find(K_KEYS, C_KEY_BUCKETS, batch.digests[place])
    found = number and glimpse(number) or false
    batch.queues[place] = found
  end
  return found
end

-- C3: a turn at its creation; A4: what holds for its key.
local function new_queue(batch, place)
  local number = C[C_QUEUES] + 1
  C[C_QUEUES], C[C_COUNTER] = number, C[C_COUNTER] + 1
  local q = read(batch.new_queue)
  q[Q_KEY], q[Q_NUMBER], q[Q_TURN] = batch.keys[place], number, C[C_COUNTER]
  q[Q_RULES] = rules_number(batch, batch.ruled[place])
  local r = rules_of(q)
  q[Q_PAUSED], q[Q_RETIRED] = r[R_PAUSED], r[R_RETIRED] and 'operator' or ''
  learn(K_KEYS, C_KEY_BUCKETS, batch.digests[place], number)
  queues[number], marked[number], batch.queues[place] = q, q, q
  return q
end

local function read_batch(blob)
  local batch = decode(blob)
  return {
    keys = batch[1],
    digests = batch[2],
    ruled = batch[3],
    rulings = batch[4],
    orders = batch[5],
    kinds = batch[6],
    new_queue = batch[7],
    queues = {},
    kind_numbers = {},
  }
end

-- C2: the tie is appended at insertion.
local function next_tie(roll)
  C[C_ARRIVALS] = C[C_ARRIVALS] + 1
  if C[C_TIE] == 'fifo' then
    return C[C_ARRIVALS]
  elseif C[C_TIE] == 'lifo' then
    return 281474976710655 - C[C_ARRIVALS]
  end
  return roll
end

-- Another kind of task, counted as such.
local function become(t, kind)
  count(t[T_KIND], t[T_STATE], -1)
  count(kind, t[T_STATE], 1)
  t[T_KIND] = kind
end

-- B3: a better priority moves a pending task forward, never back; it keeps its tie.
local function raise(number, t, p, a, b, why)
  local o, c, d, tie = parts('>I2I4I4I6', t[T_ORDER])
  if p > o or (p == o and (a > c or (a == c and b >= d))) then
    return
  end
  t[T_TEXT] = sub(t[T_TEXT], 1, t[T_SPLIT]) .. why
  reorder(number, t, pack('>I2I4I4I6', p, a, b, tie))
end

-- F10: a priority below 0 is added to a pending task's, unless the total is no number any more.
local function gather(number, t, a, b)
  local order = t[T_ORDER]
  local brought = priority_in(pack('>I4I4', a, b))
  local total = priority_in(sub(order, 3, 10)) + brought
  if brought < 0 and total > -math.huge then
    reorder(number, t, sub(order, 1, 2) .. sorted(total) .. sub(order, 11))
  end
end

local function is_full(q)
  local most, each = C[C_MAX_PENDING], C[C_MAX_PENDING_EACH]
  if most > 0 and C[C_PENDING] - C[C_HELD] >= most then
    return true
  end
  return each > 0 and q and pending_of(q) >= each
end

-- B3: a done, dead or dropped task becomes pending again, as the new link describes it.
local function readmit(number, t, q, lane, order, cost, delay, kind, roll, text, split)
  marked[q[Q_NUMBER]] = q
  count_settled(queue_of(t[T_QUEUE]), t[T_STATE], -1)
  count_settled(q, t[T_STATE], 1)
  become(t, kind)
  t[T_QUEUE], t[T_LANE], t[T_ORDER], t[T_COST] = q[Q_NUMBER], lane, order, cost
  t[T_TEXT], t[T_SPLIT], t[T_ROLL] = text, split, roll
  t[T_HISTORY], t[T_REASON], t[T_CLAIMED] = {}, false, -1
  restart(t)
  move(number, t, q, PENDING)
  line_up(number, t, q, now + delay)
  touch(q)
end

local function waits_for_judge(q)
  return q[Q_STANDING] == NEITHER
    and q[Q_NEXT_READY] <= now
    and q[Q_RETIRED] == ''
    and not q[Q_PAUSED]
    and has_slot(q, rules_of(q))
end

local function waits_for_focus(q)
  return q[Q_STANDING] == INACTIVE and C[C_OPENS_BELOW] ~= ''
end

local function bear(q, lane, order, cost, delay, kind, roll, text, split)
  local number, due, since = C[C_COUNT] + 1, now + delay, now - C[C_CREATED]
  C[C_COUNT] = number
  born[number] = encode({
    ROW,
    PENDING,
    lane,
    kind,
    q[Q_NUMBER],
    cost,
    since,
    delay > 0 and due or 0,
    roll,
    order,
    split,
    text,
  })
  count(kind, PENDING, 1)
  count_pending(q, 1)
  local entry = order .. pack('>I5', number)
  enter(q, lane, entry, due)
  -- Behind others of its lane it changes nothing, unless the queue waits to be judged.
  if due > now or q[Q_TOP0 + lane] == entry or waits_for_judge(q) or waits_for_focus(q) then
    marked[q[Q_NUMBER]] = q
    touch(q)
  end
end

-- B3: what becomes of a known task that is not simply kept; nil: it is to be visited again.
local function meet(number, t, known, p, a, b, why)
  if t[T_STATE] == PENDING then
    if known == RAISE then
      raise(number, t, p, a, b, why)
    elseif known == GATHER then
      gather(number, t, a, b)
    end
  end
  if known ~= REVISIT or t[T_STATE] == PENDING or t[T_STATE] == LEASED then
    return 'd'
  end
end

-- Most tasks are kept as they are if they are known, and nothing can be full: then one call asks
-- and learns. Answers with its number if it is known (0: not looked up), false if it is new, true if
-- it was learned.
local function recall(id, known)
  if known == KEEP and C[C_MAX_PENDING] == 0 and C[C_MAX_PENDING_EACH] == 0 then
    return learn(K_KNOWN, C_KNOWN_BUCKETS, id, C[C_COUNT] + 1) or 0
  end
  return find(K_KNOWN, C_KNOWN_BUCKETS, id) or false
end

-- The task whose head is at that place. An answer of one letter: added, duplicate, full, cancelled.
local function add(batch, heads, place, texts)
  if C[C_STATUS] == 'cancelled' then
    return 'c'
  end
  local id, known = sub(heads, place, place + 15), byte(heads, place + 16)
  local old = recall(id, known)
  local is_learned = old == true
  if is_learned then
    old = false
  elseif old and known == KEEP then
    return 'd'
  end
  local lane, p, a, b, roll, cost, delay, key, kind, split, from, upto =
    parts(HEAD, heads, place + 17)
  local t = old and task_of(old)
  local met = t and meet(old, t, known, p, a, b, sub(texts, from + split, upto))
  if met then
    return met
  end
  local q = find_queue(batch, key)
  if is_full(q) then
    return 'f'
  end
  q = q or new_queue(batch, key)
  if C[C_FIRST] < 0 then
    C[C_FIRST] = now
  end
  worked()
  local order, text = pack('>I2I4I4I6', p, a, b, next_tie(roll)), sub(texts, from, upto)
  kind = kind_in(batch, kind)
  if old then
    readmit(old, t, q, lane, order, cost, delay, kind, roll, text, split)
  else
    if not is_learned then
      learn(K_KNOWN, C_KNOWN_BUCKETS, id, C[C_COUNT] + 1)
    end
    bear(q, lane, order, cost, delay, kind, roll, text, split)
  end
  return 'a'
end
