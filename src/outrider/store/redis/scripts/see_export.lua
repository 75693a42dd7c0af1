-- export: 5 and 6 how many queues and tasks were told, 7 how many a page. Answers with the crawl's
-- row, the moment, how many are told then, rows of queues, rows of the leases of those, numbers and
-- rows of tasks; at the beginning also rules, settings and roots, at the end outcomes and timeline.
if not C then
  return { false, now }
end
local queues_told, tasks_told, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local queues_to = min(queues_told + most, C[C_QUEUES])
local tasks_to = min(tasks_told + most - (queues_to - queues_told), C[C_COUNT])
local rows, leases, told, is_lent, first, last = {}, {}, {}, false, {}, {}

for number = queues_told + 1, queues_to do
  local q = queue_of(number)
  rows[#rows + 1] = encode(q)
  is_lent = is_lent or q[Q_IN_FLIGHT] + q[Q_NAMED] > 0
end
if is_lent and C[C_STATUS] ~= 'cancelled' then
  for _, member in ipairs(call('ZRANGE', deadlines, 0, -1)) do
    local t = task_of(parts('>I5', member))
    if t[T_QUEUE] > queues_told and t[T_QUEUE] <= queues_to then
      leases[#leases + 1] = encode(t)
    end
  end
end
for number = tasks_told + 1, tasks_to do
  told[#told + 1] = number
  told[#told + 1] = call('HGET', chunk_of(K_TASKS, number), number)
end
if queues_told + tasks_told == 0 then
  first = { call('GET', at .. K_RULES) or '', call('GET', at .. K_SETTINGS) or '' }
  for _, mode in ipairs(call('SMEMBERS', at .. K_MODES)) do
    first[#first + 1] = mode
    first[#first + 1] = call('ZRANGE', at .. K_ROOTS .. mode, 0, -1)
  end
end
if queues_to == C[C_QUEUES] and tasks_to == C[C_COUNT] then
  last = { call('HGETALL', at .. K_OUTCOMES), call('LRANGE', at .. K_TIMELINE, 0, -1) }
end
return { encode(C), now, queues_to, tasks_to, rows, leases, told, first, last }
