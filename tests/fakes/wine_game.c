/* A Windows program with a game's memory and window, for wine_game.py, which writes the assembler file beside it.

   That file holds `pieces`: where each piece of the memory lies, and what is in it. The program copies them there,
   opens a window titled as its argument says, and prints a line for each key that goes down, by each of the three
   ways in which games learn of keys, for each key that goes down or up by its place on the keyboard, and for each number
   that somebody writes over the watched one. */

#include <stdio.h>
#include <string.h>
#include <windows.h>

struct piece {
    char *at;
    size_t size;
    const char *bytes;
};

extern const struct piece pieces[], pieces_end[];
extern volatile int *const watched;
extern IMAGE_DOS_HEADER __ImageBase;

static int lay_out(void) {
    const IMAGE_NT_HEADERS *header = (const void *)((char *)&__ImageBase + __ImageBase.e_lfanew);
    const char *image = (char *)&__ImageBase, *image_end = image + header->OptionalHeader.SizeOfImage;
    for (const struct piece *piece = pieces; piece < pieces_end; piece++) {
        int inside = image <= piece->at && piece->at + piece->size <= image_end;
        if (!inside && VirtualAlloc(piece->at, piece->size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) != piece->at) {
            printf("no room at %p: error %lu\n", piece->at, GetLastError());
            return 0;
        }
        memcpy(piece->at, piece->bytes, piece->size);
    }
    return 1;
}

static void poll(void) {
    static int value, down[256];
    if (*watched != value)
        printf("value %d\n", value = *watched);
    for (int key = 8; key < 256; key++) {
        int now = (GetAsyncKeyState(key) & 0x8000) != 0;
        if (now && !down[key])
            printf("state %02X\n", key);
        down[key] = now;
    }
}

static void hear_raw(HRAWINPUT input) {
    RAWINPUT raw;
    UINT size = sizeof raw;
    if (GetRawInputData(input, RID_INPUT, &raw, &size, sizeof raw.header) != (UINT)-1 &&
        raw.header.dwType == RIM_TYPEKEYBOARD && !(raw.data.keyboard.Flags & RI_KEY_BREAK))
        printf("raw %02X\n", raw.data.keyboard.VKey);
}

/* Key messages carry the scan code from bit 16 on, with the mark of extended keys above it; bit 30 of one that goes
   down says that it was down already. */
static void hear_place(const char *way, LPARAM place) {
    printf("%s %02X\n", way, (unsigned)(place >> 16 & 0x1FF));
}

static LRESULT CALLBACK hear(HWND window, UINT message, WPARAM word, LPARAM other) {
    if (message == WM_KEYDOWN && !(other & 1 << 30))
        hear_place("down", other);
    else if (message == WM_KEYUP)
        hear_place("up", other);
    if (message == WM_KEYDOWN)
        printf("message %02X\n", (unsigned)word);
    else if (message == WM_KILLFOCUS)
        printf("blur\n");
    else if (message == WM_INPUT)
        hear_raw((HRAWINPUT)other);
    else if (message == WM_TIMER)
        poll();
    else if (message == WM_DESTROY)
        PostQuitMessage(0);
    return DefWindowProcW(window, message, word, other);
}

int main(int count, char **words) {
    HINSTANCE program = GetModuleHandleW(NULL);
    WNDCLASSW kind = {.lpfnWndProc = hear, .hInstance = program, .lpszClassName = L"game"};
    RECT place = {0, 0, 800, 450};
    MSG message;

    setvbuf(stdout, NULL, _IONBF, 0);
    if (count != 2 || !lay_out())
        return 1;
    kind.hbrBackground = CreateSolidBrush(RGB(192, 32, 16));
    RegisterClassW(&kind);
    AdjustWindowRect(&place, WS_OVERLAPPEDWINDOW, FALSE);
    HWND window = CreateWindowW(L"game", L"", WS_OVERLAPPEDWINDOW, 40, 40, place.right - place.left,
                                place.bottom - place.top, NULL, NULL, program, NULL);
    RAWINPUTDEVICE keyboard = {.usUsagePage = 1, .usUsage = 6, .hwndTarget = window};
    SetWindowTextA(window, words[1]);
    RegisterRawInputDevices(&keyboard, 1, sizeof keyboard);
    ShowWindow(window, SW_SHOW);
    SetForegroundWindow(window);
    SetTimer(window, 1, 10, NULL);
    printf("ready\n");
    while (GetMessageW(&message, NULL, 0, 0) > 0) {
        TranslateMessage(&message);
        DispatchMessageW(&message);
    }
    return 0;
}
