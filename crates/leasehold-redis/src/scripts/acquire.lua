-- One try on a lock that is held or waited for; after acquire_free.lua and queue.lua.
local ttl, alive, queue = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

-- This owner has been released while a try of it was still on its way: this is that try.
if call('EXISTS', KEYS[5]) == 1 then return {'gone'} end

local current = redis.pcall('GET', L)
-- Refused for another reason than its type: no right to look, say.
if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
if type(current) == 'table' then return {'type', call('TYPE', L).ok} end

if current == owner then
  -- Handed over meanwhile, or the answer to the try that took it was lost: the same grant again.
  local token = call('HGET', F, 'c')
  if call('HGET', F, 'o') ~= owner then token = grant(owner, n, ttl, channel, holder, 0) end
  if call('PTTL', L) < ttl then call('PEXPIRE', L, ttl) end
  leave(owner)
  return {'granted', token, n, ttl}
end

local left
if not current then
  if call('EXISTS', Q) == 0 then return {'granted', grant(owner, n, ttl, channel, holder, 0), n, ttl} end
  left = (tonumber(call('HGET', F, 'p')) or 0) - now
  -- Longer than that it was never to be: the clock was set back.
  if left > pause then left = 0 end
end

if not current and left <= 0 then
  -- Who comes first is given the lock, whoever looked; who looked keeps its place.
  current = pass(0, owner)
  if not current then
    leave(owner)
    return {'granted', grant(owner, n, ttl, channel, holder, 0), n, ttl}
  end
end

if queue then
  local said = call('HGET', W, owner)
  -- A try that was overtaken must not bring an older number back: the lease would count from it.
  local known = said and tonumber(string.match(said, '^(%d+)')) or 0
  if known < tonumber(n) then
    call('HSET', W, owner, n .. ' ' .. alive .. ' ' .. string.format('%.0f', now + alive) .. ' ' .. channel .. ' ' .. holder)
  end
  if not call('ZSCORE', Q, owner) then
    call('ZADD', Q, call('HINCRBY', F, 'q', 1), owner)
    if call('PTTL', F) < 0 then call('PEXPIRE', F, week) end
  end
  -- The queue is gone by itself once nobody in it is alive.
  if call('PTTL', Q) < alive then
    call('PEXPIRE', Q, alive + 1000)
    call('PEXPIRE', W, alive + 1000)
  end
end

local place = call('ZRANK', Q, owner) or call('ZCARD', Q)
if not current then return {'busy', 0, place, left, '', '', ''} end
local about = call('HMGET', F, 'o', 'c', 'g', 'm')
local ours = about[1] == current
return {'busy', ours and 1 or 0, place, call('PTTL', L), ours and about[2] or '', ours and about[3] or '', ours and about[4] or ''}
