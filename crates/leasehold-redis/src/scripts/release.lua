-- The rest of a release; after release_free.lua, common.lua and queue.lua.
local owner, keep, tombstone, always = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'

if tombstone > 0 then call('SET', KEYS[5], '1', 'PX', tombstone) end
local current = redis.pcall('GET', L)
-- Refused for another reason than its type: no right to look, say.
if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
if type(current) == 'table' then return 'another' end
local queued = call('EXISTS', Q) == 1

if current ~= owner then
  if queued then leave(owner) end
  local broken = call('GET', KEYS[6]) == owner
  if broken then call('DEL', KEYS[6]) end
  if current then return 'another' end
  -- We may have been the one that was to take it.
  if queued then pass('0', '0') end
  return broken and 'broken' or 'expired'
end
if keep > 0 then
  call('PEXPIRE', L, keep)
  if queued then
    -- Who is first was told another time.
    local waiter, _, _, _, its = first()
    if waiter then tell(its, 'free ' .. waiter) end
  end
  return 'freed'
end

local token, of, _, _, streak, since = newest()
local head, _, _, _, channel = nil, nil, nil, nil, nil
if queued then head, _, _, _, channel = first() end
if head and not always then
  -- While the queue is never empty the key is never absent, and clients that poll for it would starve: once a
  -- second it is left to them for a moment.
  local count = (of == owner and tonumber(streak) or 0) + 1
  if count == 1 then since = millis end
  if now - tonumber(since) > 1000 then
    call('DEL', L)
    over(token, string.format('%.0f', now + pause))
    -- Who no longer listens is passed over here too.
    while head and tell(channel, 'free ' .. head) == 0 do
      leave(head)
      head, _, _, _, channel = first()
    end
    return 'freed'
  end
  if pass(count, since) then return 'freed' end
elseif head and pass('0', '0') then
  return 'freed'
end
call('DEL', L)
over(token)
return 'freed'
