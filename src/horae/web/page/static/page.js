// What a page does besides being read. Each part finds what is its own and leaves the rest.
import { keepLive } from "./live.js";
import { offerOwnZone, turnClocks } from "./clock.js";
import { listenForActions } from "./actions.js";
import { openPanels } from "./panel.js";
import { followLog } from "./log.js";
import { listenForMoves } from "./timeline.js";
import { changeRules } from "./rule.js";
import { setSchedules } from "./board.js";
import { listEntries, showChosen } from "./entries.js";
import { listenForKeys } from "./keys.js";

function attach() {
  followLog();
  showChosen();
  offerOwnZone();
}

turnClocks();
listenForActions();
openPanels();
setSchedules();
changeRules();
listEntries();
listenForKeys();
listenForMoves();
attach();
keepLive(attach);
