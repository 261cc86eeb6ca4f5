/** Snooze: pauses automatic suggestions until a time, or until the window closes. A manual request still works. */
import { commands, QuickPickItem, window } from "vscode";

const MINUTES = 10;
const SESSION = Infinity;

interface Choice extends QuickPickItem {
  minutes: number;
}

/** The snooze of this window. `changed` is called when it starts and when it ends. */
export class Snooze {
  private endsAtMs = 0; // since 1970
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly changed: () => void) {}

  get isActive(): boolean {
    return Date.now() < this.endsAtMs;
  }

  /** "until 14:35" or "for this session"; "" when there is no snooze. */
  get period(): string {
    if (!this.isActive) return "";
    return this.endsAtMs === SESSION ? "for this session" : `until ${clock(new Date(this.endsAtMs))}`;
  }

  /** Start a snooze; 0 minutes end it. */
  start(minutes: number): void {
    clearTimeout(this.timer);
    this.endsAtMs = minutes > 0 ? Date.now() + minutes * 60_000 : 0;
    if (minutes > 0 && minutes !== SESSION) this.timer = setTimeout(this.changed, minutes * 60_000 + 1);
    this.changed();
  }

  /** Let the user choose how long, and hide the shown suggestion. */
  async choose(): Promise<void> {
    const chosen = await window.showQuickPick(choices(this.isActive), { title: "Snooze suggestions" });
    if (!chosen) return;
    this.start(chosen.minutes);
    if (this.isActive) await commands.executeCommand("editor.action.inlineSuggest.hide");
  }

  dispose(): void {
    clearTimeout(this.timer);
  }
}

function choices(active: boolean): Choice[] {
  return [
    ...(active ? [{ label: "$(bell) End the snooze", minutes: 0 }] : []),
    { label: `$(clock) For ${MINUTES} minutes`, minutes: MINUTES },
    { label: "$(window) For this session", description: "until the window closes", minutes: SESSION },
  ];
}

/** Hours and minutes of a time, as 14:05. */
function clock(time: Date): string {
  return [time.getHours(), time.getMinutes()].map((part) => String(part).padStart(2, "0")).join(":");
}
