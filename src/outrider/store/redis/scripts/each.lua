-- drop, replay, purge: 5 the verb, 6 the numbers of the tasks. Answers with how many it reached.
local acts = {
  drop = function(number, t, q)
    t[T_REASON], t[T_FINISHED] = 'operator', now
    leave(q, t[T_LANE], entry_of(number, t))
    move(number, t, q, DROPPED)
    look_at(q, false)
  end,
  replay = function(number, t, q)
    restart(t)
    move(number, t, q, PENDING)
    line_up(number, t, q, now)
    worked()
    look_at(q, false)
  end,
  purge = function(number, t, q)
    t[T_REASON] = 'purged'
    move(number, t, q, DROPPED)
  end,
}
open()
local reached, wanted = 0, ARGV[5] == 'drop' and PENDING or DEAD
if C[C_STATUS] ~= 'cancelled' then
  for _, number in ipairs(decode(ARGV[6])) do
    local t = task_of(number)
    if t and t[T_STATE] == wanted then
      acts[ARGV[5]](number, t, queue_of(t[T_QUEUE]))
      reached = reached + 1
    end
  end
end
commit()
return reached
