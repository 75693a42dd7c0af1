-- release: 5 pairs of number and token. Answers with those that were held, by place.
ask_for_room()
local freed = {}
for place, pair in ipairs(decode(ARGV[5])) do
  local t = held_by(pair[1], pair[2])
  if t and t[T_STATE] == LEASED then
    release(pair[1], t)
    freed[#freed + 1] = place
  end
end
if #freed > 0 then
  commit()
end
return freed
