-- include: replace_rules
-- configure: replace the rules of a crawl, and its settings.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of the rules' numbers (see lib/replace_rules.lua). ARGV[6]: the rules as JSON.
-- ARGV[7]: the settings ("": leave them). ARGV[8]: "1" if these rules differ from the current ones.
-- ARGV[9]: who acts (see `sign`). ARGV[10]: "new" or "known": leave any other crawl alone.
-- Returns two flags: whether queues still have older rules, and whether the order among queues
-- changed; nil: the crawl's rules have another epoch.
if ARGV[10] == (C and 'new' or 'known') then
  return { 0, 0 }
elseif is_stale() then
  return false
end
open_crawl()
sign(ARGV[9])
local was_by_turn = C[C_BY_TURN]
if ARGV[8] == '1' then
  replace_rules(decode(ARGV[5]), ARGV[6])
  C[C_RULES_APPLIED] = C[C_RULES_APPLIED] and C[C_LAST_QUEUE] == 0
end
if ARGV[7] ~= '' then
  call('SET', prefix .. K_SETTINGS, ARGV[7])
end
commit()
return { C[C_RULES_APPLIED] and 0 or 1, was_by_turn ~= C[C_BY_TURN] and 1 or 0 }
