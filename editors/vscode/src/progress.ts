/** Shows fetching and loading as a notification with Cancel, which the language client's own progress lacks. */
import { CancellationToken, Progress, ProgressLocation, window } from "vscode";
import {
  ProgressToken,
  WorkDoneProgressBegin,
  WorkDoneProgressEnd,
  WorkDoneProgressReport,
} from "vscode-languageclient";

const QUICK_MS = 2000; // a model that is on disk loads in about this; the status bar is enough for that

type Part = WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd;

/** The server's progress bars; `cancel` is told which one the user does not want. */
export class Notifications {
  private readonly shown = new Map<ProgressToken, Notification>();

  constructor(private readonly cancel: (token: ProgressToken) => void) {}

  show(token: ProgressToken, part: Part): void {
    if (part.kind === "begin") this.shown.set(token, new Notification(part, () => this.cancel(token)));
    else if (part.kind === "report") this.shown.get(token)?.report(part);
    else this.end(token);
  }

  /** The server has gone: nothing will be reported any more. */
  endAll(): void {
    for (const token of [...this.shown.keys()]) this.end(token);
  }

  private end(token: ProgressToken): void {
    this.shown.get(token)?.end();
    this.shown.delete(token);
  }
}

class Notification {
  private readonly timer: NodeJS.Timeout;
  private bar: Progress<{ message?: string; increment?: number }> | undefined;
  private latest: WorkDoneProgressReport | WorkDoneProgressBegin;
  private percent = 0;
  private finish: () => void = () => undefined;

  constructor(begin: WorkDoneProgressBegin, onCancel: () => void) {
    this.latest = begin;
    this.timer = setTimeout(() => this.open(begin, onCancel), QUICK_MS);
  }

  report(part: WorkDoneProgressReport | WorkDoneProgressBegin): void {
    this.latest = { ...this.latest, ...part };
    const now = this.latest.percentage ?? 0;
    const { message } = this.latest;
    this.bar?.report({ ...(message === undefined ? {} : { message }), increment: Math.max(0, now - this.percent) });
    if (this.bar) this.percent = Math.max(now, this.percent);
  }

  end(): void {
    clearTimeout(this.timer);
    this.finish();
  }

  private open(begin: WorkDoneProgressBegin, onCancel: () => void): void {
    const options = {
      location: ProgressLocation.Notification,
      title: begin.title,
      cancellable: begin.cancellable ?? false,
    };
    void window.withProgress(options, (bar, token: CancellationToken) => {
      token.onCancellationRequested(onCancel);
      this.bar = bar;
      this.report(this.latest as WorkDoneProgressReport);
      return new Promise<void>((resolve) => (this.finish = resolve));
    });
  }
}
