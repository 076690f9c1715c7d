-- Who holds and who waits on one node; changes nothing. KEYS: L F Q W.
-- Answers {'type', what it is} or
-- {'seen', value or '', ours (0/1), expires in ms, counter, granted ms, holder, waiter, waiter, …}
local call = redis.call
local held = redis.pcall('GET', KEYS[1])
-- Refused for another reason than its type: no right to look, say.
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE') then return held end
if type(held) == 'table' then return {'type', call('TYPE', KEYS[1]).ok} end
local about = call('HMGET', KEYS[2], 'o', 'c', 'g', 'm')
local ours = held and about[1] == held
local answer = {'seen', held or '', ours and 1 or 0, call('PTTL', KEYS[1]), about[2] or '', ours and about[3] or '', ours and about[4] or ''}
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, owner in ipairs(call('ZRANGE', KEYS[3], 0, 99)) do
  local till, holder = string.match(call('HGET', KEYS[4], owner) or '', '^%d+ (%d+) %S+ (.*)$')
  if till and tonumber(till) > now then answer[#answer + 1] = holder end
end
return answer
