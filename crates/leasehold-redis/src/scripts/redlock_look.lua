-- Who holds and who waits on one node; changes nothing. KEYS: L F Q W.
-- Answers {'type', what it is} or
-- {'seen', mark of the value or '', counter, expires in ms, token, granted ms, holder, waiter, waiter, …}
local call = redis.call
local held = redis.pcall('GET', KEYS[1])
-- Refused for another reason than its type: no right to look, say.
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE') then return held end
if type(held) == 'table' then return {'type', call('TYPE', KEYS[1]).ok} end
local about = call('HMGET', KEYS[2], 'o', 't', 'g', 'm', 'c')
local ours = held and about[1] == held
local answer = {'seen', held and redis.sha1hex(held) or '', about[5] or '', call('PTTL', KEYS[1])}
for at = 2, 4 do answer[#answer + 1] = ours and about[at] or '' end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, owner in ipairs(call('ZRANGE', KEYS[3], 0, 99)) do
  local till, holder = string.match(call('HGET', KEYS[4], owner) or '', '^%d+ (%d+) %S+ (.*)$')
  if till and tonumber(till) > now then answer[#answer + 1] = holder end
end
return answer
