"""Scripts for the list of nodes. `INTRODUCE` is `node_cards.py`; tests hold the two together."""

from __future__ import annotations

from typing import Final

INTRODUCE: Final = """
local node, epoch, forget, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[6])
local cards, order = {}, {}
local raw = redis.call('HGETALL', KEYS[1])
for i = 1, #raw, 2 do cards[raw[i]] = cjson.decode(raw[i + 1]) end
local own = cards[node]
if not own or epoch >= own.e then cards[node] = {e = epoch, p = ARGV[3], v = ARGV[4], t = now} end
for name, card in pairs(cards) do
  card.t = math.min(card.t, now)
  order[#order + 1] = name
end
table.sort(order, function(a, b)
  if cards[a].t ~= cards[b].t then return cards[a].t > cards[b].t end
  return a < b
end)
local kept = {}
for place, name in ipairs(order) do
  local card = cards[name]
  if place > most or now - card.t >= forget then redis.call('HDEL', KEYS[1], name)
  else
    redis.call('HSET', KEYS[1], name, cjson.encode(card))
    local there = redis.call('PUBSUB', 'NUMSUB', ARGV[7] .. name)[2] > 0
    kept[#kept + 1] = {n = name, e = card.e, p = card.p, v = card.v, a = now - card.t, o = there}
  end
end
redis.call('PEXPIRE', KEYS[1], forget)
return cjson.encode(kept)
"""

LEAVE: Final = """
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if raw and cjson.decode(raw).e == tonumber(ARGV[2]) then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 1
"""

LEADER: Final = """
local leader = redis.call('HGET', KEYS[1], 'leader')
if leader and redis.call('HGET', KEYS[1], 'n:' .. leader) then return leader end
return ''
"""
