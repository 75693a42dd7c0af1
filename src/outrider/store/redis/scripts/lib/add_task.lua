-- include: index, reorder, leases
-- Adding tasks: a new one is inserted, a known one changed by its `known` rule (B3, B4, C2). A
-- batch holds what its tasks share: keys, their digests and rules, rules, and kinds; tasks name
-- these by position. The heads of all tasks are one string, their texts another: creating strings
-- is expensive, and most tasks are known.
local HEAD = '>BI2I4I4I6I2I8I4I4I4I4I4' -- after the fingerprint and the `known` rule
local HEAD_SIZE = HEAD_BYTES

-- The number of queue rules; new ones are stored.
local function rules_number(batch, position)
  local text = batch.rules_texts[position]
  local number = tonumber(call('HGET', prefix .. K_RULES_NUMBERS, text))
  if not number then
    number = call('HLEN', prefix .. K_RULES_NUMBERS) + 1
    call('HSET', prefix .. K_RULES_NUMBERS, text, number)
    call('HSET', prefix .. K_RULES_ROWS, number, encode(batch.rules_rows[position]))
    call('HSET', prefix .. K_RULES_TEXTS, number, text)
  end
  return number
end

-- The number of a kind; a new one is stored.
local function kind_number(kind)
  local id = encode(kind)
  local number = tonumber(call('HGET', prefix .. K_KIND_NUMBERS, id))
  if not number then
    number = call('HLEN', prefix .. K_KIND_NUMBERS) + 1
    call('HSET', prefix .. K_KIND_NUMBERS, id, number)
    call('HSET', prefix .. K_KINDS, number, id)
  end
  return number
end

local function kind_of_batch(batch, position)
  local kinds = batch.kind_numbers
  kinds[position] = kinds[position] or kind_number(batch.kinds[position])
  return kinds[position]
end

local function find_queue(batch, position)
  local found = batch.queues[position]
  if found == nil then
    local number = index_find(K_KEYS, C_KEY_BUCKETS, batch.digests[position])
    found = number and peek_queue(number) or false
    batch.queues[position] = found
  end
  return found
end

-- C3, A4: create a queue, with the next turn and under the rules of its key.
local function new_queue(batch, position)
  local number = C[C_LAST_QUEUE] + 1
  C[C_LAST_QUEUE], C[C_LAST_TURN] = number, C[C_LAST_TURN] + 1
  local q = decode_row(batch.new_queue)
  q[Q_KEY], q[Q_NUMBER], q[Q_TURN] = batch.keys[position], number, C[C_LAST_TURN]
  q[Q_RULES] = rules_number(batch, batch.rules_of_keys[position])
  local r = rules_of(q)
  q[Q_PAUSED], q[Q_RETIRED] = r[R_PAUSED], r[R_RETIRED] and 'operator' or ''
  index_insert(K_KEYS, C_KEY_BUCKETS, batch.digests[position], number)
  add_member(prefix .. K_QUEUE_NAMES, name_of_queue(q), 0)
  queues[number], dirty_queues[number], batch.queues[position] = q, q, q
  return q
end

local function decode_batch(blob)
  local batch = decode(blob)
  return {
    keys = batch[1],
    digests = batch[2],
    rules_of_keys = batch[3],
    rules_texts = batch[4],
    rules_rows = batch[5],
    kinds = batch[6],
    new_queue = batch[7],
    queues = {},
    kind_numbers = {},
  }
end

-- C2: the tie of a task, by which tasks of equal priority are ordered.
local function next_tie(roll)
  C[C_LAST_ARRIVAL] = C[C_LAST_ARRIVAL] + 1
  if C[C_TIE] == 'fifo' then
    return C[C_LAST_ARRIVAL]
  elseif C[C_TIE] == 'lifo' then
    return 281474976710655 - C[C_LAST_ARRIVAL]
  end
  return roll
end

-- Change the kind under which a task is counted.
local function set_kind(t, kind)
  count_task(t[T_KIND], t[T_STATE], -1)
  count_task(kind, t[T_STATE], 1)
  t[T_KIND] = kind
end

-- B3: a better priority moves a pending task forward, never back; it keeps its tie.
local function raise_priority(number, t, p, a, b, breakdown)
  local o, c, d, tie = unpack_bytes('>I2I4I4I6', t[T_ORDER])
  if p > o or (p == o and (a > c or (a == c and b >= d))) then
    return
  end
  t[T_TEXT] = sub(t[T_TEXT], 1, t[T_SPLIT]) .. breakdown
  reorder(number, t, pack('>I2I4I4I6', p, a, b, tie))
end

-- F10: a priority below 0 is added to a pending task's, unless the sum is not finite.
local function gather_priority(number, t, a, b)
  local order = t[T_ORDER]
  local added = priority_of_bytes(pack('>I4I4', a, b))
  local total = priority_of_bytes(sub(order, 3, 10)) + added
  if added < 0 and total > -math.huge then
    reorder(number, t, sub(order, 1, 2) .. bytes_of_priority(total) .. sub(order, 11))
  end
end

local function is_full(q)
  local total, per_queue = C[C_MAX_PENDING], C[C_MAX_PENDING_PER_QUEUE]
  if total > 0 and C[C_PENDING] - C[C_RETIRED_PENDING] >= total then
    return true
  end
  return per_queue > 0 and q and pending_count(q) >= per_queue
end

-- B3: make a known task that is not leased what the new link says: pending again, or done.
local function readmit_task(number, t, q, lane, order, cost, delay, kind, roll, text, split, is_done)
  local old, was_pending = queue_by_number(t[T_QUEUE]), t[T_STATE] == PENDING
  dirty_queues[q[Q_NUMBER]] = q
  if is_forgotten(t) then
    C[C_FORGOTTEN] = C[C_FORGOTTEN] - 1
  end
  if was_pending then
    remove_entry(old, t[T_LANE], entry_of(number, t))
    count_priority(t[T_ORDER], -1)
    count_priority(order, 1)
  end
  count_in(old, t[T_STATE], -1)
  count_in(q, t[T_STATE], 1)
  set_kind(t, kind)
  if t[T_QUEUE] ~= q[Q_NUMBER] then
    insert_into_queue_tasks(q[Q_NUMBER], number)
  end
  t[T_QUEUE], t[T_LANE], t[T_ORDER], t[T_COST] = q[Q_NUMBER], lane, order, cost
  t[T_TEXT], t[T_SPLIT], t[T_ROLL] = text, split, roll
  t[T_HISTORY], t[T_REASON], t[T_CLAIMED], t[T_META] = {}, false, -1, ''
  reset_attempts(t)
  set_state(number, t, q, is_done and DONE or PENDING)
  if was_pending and (is_done or old ~= q) then
    refresh(old, false)
  end
  if is_done then
    t[T_DUE], t[T_FINISHED] = now + delay, now
  else
    enqueue(number, t, q, now + delay)
    reschedule(q)
  end
end

-- B3: a URL becomes known as done, without a visit.
local function insert_done(q, lane, order, cost, delay, kind, roll, text, split)
  local number, since = C[C_LAST_TASK] + 1, now - C[C_CREATED]
  local due = now + delay
  local t = { ROW, DONE, lane, kind, q[Q_NUMBER], cost, since, due, roll, order, split, text }
  C[C_LAST_TASK] = number
  fill_history(t)
  t[T_FINISHED] = now
  tasks[number], dirty_tasks[number], dirty_queues[q[Q_NUMBER]] = t, t, q
  append_to_queue_tasks(q[Q_NUMBER], pack('>I5', number))
  count_task(kind, DONE, 1)
  count_ended(q, DONE, 1)
end

local function awaits_reschedule(q)
  return q[Q_LIST_STATE] == UNLISTED
    and q[Q_NEXT_READY] <= now
    and q[Q_RETIRED] == ''
    and not q[Q_PAUSED]
    and has_slot(q, rules_of(q))
end

local function awaits_focus(q)
  return q[Q_LIST_STATE] == INACTIVE and C[C_OPENS_BELOW] ~= ''
end

local function insert_task(q, lane, order, cost, delay, kind, roll, text, split)
  local number, due, since = C[C_LAST_TASK] + 1, now + delay, now - C[C_CREATED]
  C[C_LAST_TASK] = number
  dirty_tasks[number] = encode({
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
  count_task(kind, PENDING, 1)
  count_pending(q, 1)
  count_priority(order, 1)
  local packed = pack('>I5', number)
  append_to_queue_tasks(q[Q_NUMBER], packed)
  local entry = order .. packed
  insert_entry(q, lane, entry, due)
  -- Behind others of its lane it changes nothing, unless the queue must be rescheduled.
  if due > now or q[Q_TOP0 + lane] == entry or awaits_reschedule(q) or awaits_focus(q) then
    dirty_queues[q[Q_NUMBER]] = q
    reschedule(q)
  end
end

-- B3: apply the `known` rule to a known task. Return the answer; nil: the task becomes what the
-- link says. H6: a link of the page that is being finished to that page itself changes nothing.
local function update_known(number, t, known, p, a, b, breakdown, finishing)
  if is_forgotten(t) or (known == KNOWN_SET and number ~= finishing) then
    return nil
  end
  if t[T_STATE] == PENDING then
    if known == KNOWN_RAISE then
      raise_priority(number, t, p, a, b, breakdown)
    elseif known == KNOWN_GATHER then
      gather_priority(number, t, a, b)
    end
  end
  if known ~= KNOWN_REVISIT or t[T_STATE] == PENDING or t[T_STATE] == LEASED then
    return 'd'
  end
end

-- Find a task, and insert it into the index if one command can do both: if a known task is kept as
-- it is, and no limit can refuse a new one, which is most often so. Return the number of a known
-- task (0: not read), false if it is new, true if it is new and inserted.
local function find_or_insert(id, known)
  local has_no_limit = C[C_MAX_PENDING] == 0 and C[C_MAX_PENDING_PER_QUEUE] == 0
  if known == KNOWN_KEEP and has_no_limit and C[C_FORGOTTEN] == 0 then
    return index_insert(K_KNOWN, C_KNOWN_BUCKETS, id, C[C_LAST_TASK] + 1) or 0
  end
  return index_find(K_KNOWN, C_KNOWN_BUCKETS, id) or false
end

-- Add the task whose head is at a position; `finishing` is the task whose page has this link, or
-- nil. Return "a" (added), "d" (duplicate), "f" (the queue or the crawl is full) or "c" (the crawl
-- is cancelled).
local function add_task(batch, heads, position, texts, finishing)
  if C[C_STATUS] == 'cancelled' then
    return 'c'
  end
  local id, known = sub(heads, position, position + 15), byte(heads, position + 16)
  local is_done = known >= ADD_DONE
  if is_done then
    known = known - ADD_DONE
  end
  local old = find_or_insert(id, known)
  local is_indexed = old == true
  if is_indexed then
    old = false
  elseif old and known == KNOWN_KEEP and C[C_FORGOTTEN] == 0 then
    return 'd'
  end
  local lane, p, a, b, roll, cost, delay, key, kind, split, from, upto =
    unpack_bytes(HEAD, heads, position + 17)
  local t = old and task_by_number(old)
  local breakdown = t and sub(texts, from + split, upto)
  local answer = t and update_known(old, t, known, p, a, b, breakdown, finishing)
  if answer then
    return answer
  end
  local q, was_pending = find_queue(batch, key), t and t[T_STATE] == PENDING
  if not is_done and not was_pending and is_full(q) then
    return 'f'
  end
  if t and t[T_STATE] == LEASED then
    release_lease(old, t)
  end
  q = q or new_queue(batch, key)
  if not is_done then
    if C[C_STARTED] < 0 then
      C[C_STARTED] = now
    end
    work_added()
  end
  local order, text = pack('>I2I4I4I6', p, a, b, next_tie(roll)), sub(texts, from, upto)
  kind = kind_of_batch(batch, kind)
  if old then
    readmit_task(old, t, q, lane, order, cost, delay, kind, roll, text, split, is_done)
    return 'a'
  end
  if not is_indexed then
    index_insert(K_KNOWN, C_KNOWN_BUCKETS, id, C[C_LAST_TASK] + 1)
  end
  local insert = is_done and insert_done or insert_task
  insert(q, lane, order, cost, delay, kind, roll, text, split)
  return 'a'
end
