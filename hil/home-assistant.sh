#!/usr/bin/env bash
# aetherd against a real Home Assistant: discovery, restarts, a silent board, a renamed and a removed zone.
#
#   hil/home-assistant.sh TOOLS [AETHERD]
#
# TOOLS is a folder with start.sh, stop.sh and ha.py that runs a headless Home Assistant on loopback (see its README;
# its setup.sh must have run once). AETHERD is the program (target/release/aetherd by default). Takes some four minutes;
# not part of CI. Prints one line per step and ends with 1 if any failed.
set -uo pipefail
tools=$1
aetherd=$(realpath "${2:-target/release/aetherd}")
export HA_RUN=${HA_RUN:-/tmp/ha-run} MQTT_PORT=${MQTT_PORT:-18883}
work=$(mktemp -d)
udp=15005
failed=0
ha() { python3 "$tools/ha.py" "$@"; }
step() { # step TEXT COMMAND...: runs it, says how it went
  local text=$1 out; shift
  if out=$("$@" 2>&1); then echo "ok    $text"; else echo "FAIL  $text: $(tail -n 3 <<<"$out" | tr '\n' ' ')"; failed=1; fi
}
state_is() { [[ $(ha states "$1" | python3 -c 'import json,sys; print(next((s["state"] for s in json.load(sys.stdin) if s["entity_id"]==sys.argv[1]), "none"))' "$1") == "$2" ]]; }
soon() { local limit=$1 i; shift; for ((i = 0; i < limit; i++)); do "$@" && return 0; sleep 1; done; return 1; }
clean_log() { ha log-errors | grep -vE 'No device components to cleanup|[Cc]onnection lost|Error returned from MQTT server|Failed to connect to MQTT server' | grep -E 'WARNING|ERROR' && return 1; return 0; }

config() { # config ZONES: zones as TOML
  cat >"$work/aetherd.toml" <<TOML
state_dir = "$work/state"
[frames.udp]
listen = ["127.0.0.1:$udp"]
[mqtt]
host = "127.0.0.1"
port = $MQTT_PORT
instance = "hil"
birth_delay_max_ms = 1000
[web]
enabled = false
[occupancy]
hold_s = 5.0
dwell_s = 0.0
$1
TOML
}
both=$'[[zone]]\nname = "Living room"\narea = "Living room"\n[[zone]]\nname = "Study"\n'
renamed=$'[[zone]]\nname = "Salon"\nid = "living_room"\narea = "Living room"\n[[zone]]\nname = "Study"\n'
one=$'[[zone]]\nname = "Salon"\nid = "living_room"\narea = "Living room"\n'

boards() { "$aetherd" simulate "$1" --udp "127.0.0.1:$udp" --for 1h 2>/dev/null & board=$!; }
quiet() { kill "$board" 2>/dev/null; wait "$board" 2>/dev/null; }
finish() { quiet; kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null; "$tools/stop.sh" >/dev/null 2>&1; rm -rf "$work"; }
trap finish EXIT

"$tools/start.sh" fresh >/dev/null || exit 1
config "$both"
boards walk
"$aetherd" run --config "$work/aetherd.toml" 2>"$work/log" & daemon=$!

step "zone occupied by motion" ha wait-for binary_sensor.living_room_occupancy on --timeout 30
step "motion entity" ha wait-for binary_sensor.living_room_motion on --timeout 10
step "people, at least one" ha wait-for sensor.living_room_people 1 --timeout 10
step "the attribute says at least" bash -c "[[ \$(python3 '$tools/ha.py' states sensor.living_room_people) == *'\"at_least\": true'* ]]"
step "second zone" ha wait-for binary_sensor.study_occupancy on --timeout 10
step "event entity has an event" soon 10 bash -c "[[ \$(python3 '$tools/ha.py' states event.living_room_events) == *entered* ]]"
step "board connectivity" soon 20 bash -c "python3 '$tools/ha.py' states binary_sensor | grep -q '_node_1_node_connectivity\|node_1_node_connectivity'"
step "hub connectivity" ha wait-for binary_sensor.aetherd_hil_connectivity on --timeout 10
step "no problem reported" ha wait-for binary_sensor.aetherd_hil_problem off --timeout 70
step "area suggested" bash -c "python3 '$tools/ha.py' devices aetherd_hil_zone_living_room | grep -qi 'living_room'"
step "log clean after discovery" clean_log
ha mark

ha call number.set_value '{"entity_id": "number.living_room_hold", "value": 9}' >/dev/null
step "hold time set from Home Assistant and confirmed" soon 10 bash -c "[[ \$(python3 '$tools/ha.py' render '{{ states(\"number.living_room_hold\") | float(0) }}') == *9.0* ]]"
quiet; boards empty
step "zone clear when the room is empty" soon 40 state_is binary_sensor.living_room_occupancy off

step "Home Assistant restarts" ha restart
step "state is right after its restart" soon 20 state_is binary_sensor.living_room_occupancy off
quiet; boards walk
step "and follows" soon 30 state_is binary_sensor.living_room_occupancy on
step "log clean after the restart" clean_log
ha mark

kill -9 "$(cat "$HA_RUN/mosquitto.pid")"; rm -f "$HA_RUN"/broker/mosquitto.db; sleep 2
setsid mosquitto -c "$HA_RUN/broker/mosquitto.conf" >/dev/null 2>&1 & echo $! >"$HA_RUN/mosquitto.pid"
step "all back after the broker lost everything" soon 60 state_is binary_sensor.living_room_occupancy on
step "log clean but for the lost connection" clean_log
ha mark

quiet
node=$(ha states binary_sensor | python3 -c 'import json,sys; print(next(s["entity_id"] for s in json.load(sys.stdin) if s["entity_id"].endswith("node_1_node_connectivity")))')
step "a silent board is disconnected" soon 25 state_is "$node" off
step "its zone becomes unavailable, not clear" soon 75 state_is binary_sensor.living_room_occupancy unavailable
boards walk
step "and comes back" soon 30 state_is binary_sensor.living_room_occupancy on

config "$renamed"; kill -HUP "$daemon"
step "renamed zone keeps its entity" soon 15 bash -c "python3 '$tools/ha.py' devices aetherd_hil_zone_living_room | grep -q 'Salon presence'"
step "and its state" soon 15 state_is binary_sensor.living_room_occupancy on
config "$one"; kill -HUP "$daemon"
step "removed zone leaves the registry" ha gone binary_sensor.study_occupancy --timeout 30
step "the other stays" soon 15 state_is binary_sensor.living_room_occupancy on
kill -TERM "$daemon"; wait "$daemon"
step "clean stop: unavailable" soon 15 state_is binary_sensor.living_room_occupancy unavailable
step "log clean at the end" clean_log
exit $failed
