-- Another order among queues holds: 5 and 6 are the queues that stand anew, first and last.
ask_for_room()
for number = ARGV[5], min(ARGV[6], C[C_QUEUES]) do
  local q = queue_of(number)
  if q[Q_STANDING] == READY then
    rank(q, 0)
  end
end
commit()
return min(ARGV[6], C[C_QUEUES]) < C[C_QUEUES] and 1 or 0
