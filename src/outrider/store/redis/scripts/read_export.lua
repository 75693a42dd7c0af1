-- include: schedule
-- read_export: read a page of an export.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5] and ARGV[6]: how many queues and tasks were exported before. ARGV[7]: how many at most.
-- ARGV[8]: how many bytes: the task that reaches them is the last one.
-- Returns the crawl's row, the time, how many queues and tasks are exported after this, rows of
-- queues, of each task leased from these its queue, cost, time of its lease, and whether it was leased
-- by fingerprint or on loan, numbers and rows of tasks; on the first page
-- rules, settings, modes and roots, else nothing; on the last page outcomes and timeline, else
-- nothing; nil and the time if there is no crawl.
if not C then
  return { false, now }
end
local queues_from, tasks_from, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local queues_to = min(queues_from + most, C[C_LAST_QUEUE])
local tasks_to = min(tasks_from + most - (queues_to - queues_from), C[C_LAST_TASK])
local rows, leases, tasks_read, has_leases, first, last = {}, {}, {}, false, {}, {}

for number = queues_from + 1, queues_to do
  local q = queue_by_number(number)
  rows[#rows + 1] = encode(q)
  has_leases = has_leases or q[Q_IN_FLIGHT] + q[Q_NAMED] > 0
end
if has_leases and C[C_STATUS] ~= 'cancelled' then
  for _, member in ipairs(call('ZRANGE', deadlines, 0, -1)) do
    local t = task_by_number(unpack_bytes('>I5', member))
    if t[T_QUEUE] > queues_from and t[T_QUEUE] <= queues_to then
      local lease = { t[T_QUEUE], t[T_COST], t[T_CLAIMED], t[T_NAMED], t[T_LOANED] }
      leases[#leases + 1] = encode(lease)
    end
  end
end
local room = tonumber(ARGV[8])
for number = tasks_from + 1, tasks_to do
  local row = call('HGET', chunk_key(K_TASKS, number), number)
  tasks_read[#tasks_read + 1] = number
  tasks_read[#tasks_read + 1] = row
  room = room - long_bytes(row)
  if room <= 0 then
    tasks_to = number
    break
  end
end
if queues_from + tasks_from == 0 then
  first = { call('GET', prefix .. K_RULES) or '', call('GET', prefix .. K_SETTINGS) or '' }
  for _, mode in ipairs(call('SMEMBERS', prefix .. K_MODES)) do
    first[#first + 1] = mode
    first[#first + 1] = call('ZRANGE', prefix .. K_ROOTS .. mode, 0, -1)
  end
end
if queues_to == C[C_LAST_QUEUE] and tasks_to == C[C_LAST_TASK] then
  last = { call('HGETALL', prefix .. K_OUTCOMES), call('LRANGE', prefix .. K_TIMELINE, 0, -1) }
end
return { encode(C), now, queues_to, tasks_to, rows, leases, tasks_read, first, last }
