-- Who holds and who waits; changes nothing. Answers {'type', what it is} or
-- {'seen', held (0/1), ours (0/1), expires in ms, token, granted ms, holder, waiter, waiter, …}
local call = redis.call
local L, F, Q, W = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local current = redis.pcall('GET', L)
-- Refused for another reason than its type: no right to look, say.
if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
if type(current) == 'table' then return {'type', call('TYPE', L).ok} end
local about = call('HMGET', F, 'o', 'c', 'g', 'm')
local ours = current and about[1] == current
local answer = {'seen', current and 1 or 0, ours and 1 or 0, call('PTTL', L), about[2] or '', ours and about[3] or '', ours and about[4] or ''}
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, owner in ipairs(call('ZRANGE', Q, 0, 99)) do
  local till, holder = string.match(call('HGET', W, owner) or '', '^%d+ %d+ (%d+) %S+ (.*)$')
  if till and tonumber(till) > now then answer[#answer + 1] = holder end
end
return answer
