-- The keys of queues: 5 their numbers.
local keys = {}
for place, number in ipairs(decode(ARGV[5])) do
  keys[place] = glimpse(number)[Q_KEY]
end
return keys
