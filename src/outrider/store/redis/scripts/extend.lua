-- extend: 5 milliseconds, 6 pairs of number and token. Answers with those still held, by place.
local kept, pairs_ = {}, decode(ARGV[6])
for place, pair in ipairs(pairs_) do
  local t = held_by(pair[1], pair[2])
  if t and t[T_STATE] == LEASED then
    call('ZADD', deadlines, now + ARGV[5], pack('>I5', pair[1]))
    kept[#kept + 1] = place
  end
end
return kept
