-- Who holds and who waits; changes nothing; after common.lua and queue.lua. Answers {'type', what it is} or
-- {'seen', held (0/1), ours (0/1), expires in ms, token, granted ms, holder, waiter, waiter, …}
local current = redis.pcall('GET', L)
-- Refused for another reason than its type: no right to look, say.
if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
if type(current) == 'table' then return {'type', call('TYPE', L).ok} end
local token, of, granted, _, _, _, about = newest()
local ours = current and of == current
local answer = {'seen', current and 1 or 0, ours and 1 or 0, call('PTTL', L), token or '', ours and granted or '', ours and about or ''}
for _, owner in ipairs(call('ZRANGE', Q, 0, 99)) do
  local till, holder = string.match(call('HGET', W, owner) or '', '^%d+ %d+ (%d+) %S+ (.*)$')
  if till and tonumber(till) > now then answer[#answer + 1] = holder end
end
return answer
