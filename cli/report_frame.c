/* What every page has: style sheet, script, head and foot. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

/* Colors of lines (c1 to c8) differ by at least 20 in CIELAB for readers with each kind of color blindness, and have a
   contrast of 3:1 with their background; texts have 4.5:1. Lines also differ in dashes and marks. */
static const char *const style[] = {
    ":root{--bg:#f5f6f8;--card:#fff;--text:#1a1f27;--muted:#5a6472;--line:#dfe3e8;--grid:#e9ecf0;--c1:#2563c9;"
    "--c2:#c4500c;--c3:#1ca39c;--c4:#811d79;--c5:#1a1f27;--c6:#b7795a;--c7:#58421e;--c8:#3f5751;--good:#1a7f4b;"
    "--bad:#b3261e;--differs:#fff3d6;",
    "--p0:#d99a1c;--p1:#8fb8a8;--p2:#7aa5e8;--p3:#2f66c4;--p4:#b9a3e3;--p5:#d9534a;--p6:#3c9a62;--p7:#8b5fc7;"
    "--p8:#c98bb0;--p9:#9aa3ae}",
    "@media(prefers-color-scheme:dark){:root{--bg:#12151a;--card:#1a1e25;--text:#e5e8ed;--muted:#9aa5b4;--line:#2c323c;"
    "--grid:#262c35;--c1:#72a7ff;--c2:#ff9a57;--c3:#0efba8;--c4:#d04c63;--c5:#f2f4f8;--c6:#f3cb0e;--c7:#7a90bc;"
    "--c8:#b2aaaa;--differs:#3d3216;",
    "--good:#5ccb8f;--bad:#ff8a80;--p0:#e6b04a;--p1:#7fae9d;--p2:#8db6f5;--p3:#4a82e0;--p4:#a48bd6;--p5:#ea6a61;"
    "--p6:#4fb37a;--p7:#a27ddb;--p8:#d69bbf;--p9:#7d8794}}",
    "*{box-sizing:border-box}html{color-scheme:light dark}body{margin:0;overflow-wrap:break-word;background:var(--bg);"
    "color:var(--text);font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;",
    "-webkit-text-size-adjust:100%}main,header{max-width:1240px;margin:0 auto;padding:0 20px}header{padding-top:28px}",
    "h1{font-size:28px;line-height:1.2;margin:2px 0 6px;overflow-wrap:anywhere}h2{font-size:19px;margin:34px 0 12px}"
    "h3{font-size:14px;margin:0 0 8px;font-weight:600}p{margin:0 0 10px}",
    ".eyebrow{color:var(--muted);font-size:13px;letter-spacing:.02em;margin:0}.muted{color:var(--muted)}"
    ".meta{color:var(--muted);display:flex;flex-wrap:wrap;gap:4px 14px;align-items:center;margin:0}",
    ".pill{border:1px solid currentColor;border-radius:99px;padding:0 10px;font-size:13px;font-weight:600}"
    ".pill.good{color:var(--good)}.pill.bad{color:var(--bad)}",
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;margin:0;min-width:0}",
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0 0;padding:0}"
    ".facts div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px;min-width:0}",
    ".facts dt{color:var(--muted);font-size:13px}.facts dd{margin:0;font-size:23px;font-weight:600;"
    "font-variant-numeric:tabular-nums;overflow-wrap:anywhere;line-height:1.3}"
    ".facts small{display:block;font-size:13px;font-weight:400;color:var(--muted)}",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:16px}"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px;align-items:start}",
    "svg{display:block;width:100%;height:auto}.tick{fill:var(--muted);font-size:11px}"
    ".grid{stroke:var(--grid);stroke-width:1;fill:none}.base{stroke:var(--line)}",
    ".line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
    ".line.faint{--c:var(--c1);stroke-width:1;opacity:.35}.dots path{fill:var(--c);stroke:var(--c);stroke-width:1.5}"
    ".s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}.s5{--c:var(--c5)}.s6{--c:var(--c6)}"
    ".s7{--c:var(--c7)}.s8{--c:var(--c8)}.dots.s2 path,.dots.s7 path{fill:var(--card)}",
    ".line.s2{stroke-dasharray:6 4}.line.s3{stroke-dasharray:2 4}.line.s4{stroke-dasharray:10 4 2 4}"
    ".line.s5{stroke-dasharray:14 4}.line.s6{stroke-dasharray:4 3}.line.s7{stroke-dasharray:10 3 2 3 2 3}"
    ".line.s8{stroke-dasharray:2 6}",
    ".chart{position:relative}.chart>svg{touch-action:pan-y;outline:0}"
    ".chart>svg:focus-visible{outline:2px solid var(--c1)}"
    ".guide{stroke:var(--muted);stroke-width:1;stroke-dasharray:2 2}.pick{fill:var(--c1);opacity:.15}"
    ".tip{position:absolute;top:34px;background:var(--card);border:1px solid var(--line);border-radius:6px;"
    "padding:4px 8px;font-size:12.5px;line-height:1.4;pointer-events:none;max-width:75%;overflow-wrap:anywhere;"
    "box-shadow:0 2px 8px #0003;font-variant-numeric:tabular-nums}.tip p{margin:0}.tip[hidden]{display:none}",
    ".reset{position:absolute;top:12px;right:14px;font:inherit;font-size:12.5px;color:var(--text);cursor:pointer;"
    "background:var(--card);border:1px solid var(--line);border-radius:6px;padding:1px 8px}"
    ".reset[hidden]{display:none}",
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:8px 0 0;padding:0;font-size:13px}"
    ".legend li,.meta span{min-width:0;overflow-wrap:anywhere}.legend b{font-variant-numeric:tabular-nums}",
    ".key{display:inline-block;width:28px;height:10px;vertical-align:middle;margin-right:6px}",
    ".scroll{overflow-x:auto}.scroll:focus-visible{outline:2px solid var(--c1)}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13.5px;width:100%}",
    "th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "th{font-weight:600;color:var(--muted)}th:first-child,td:first-child{text-align:left;padding-left:0}"
    "td:last-child,th:last-child{padding-right:0}tr:last-child td,tr:last-child th{border-bottom:0}",
    "tbody th{color:var(--text);font-weight:400}.pairs td,.pairs th{text-align:left;white-space:normal;"
    "overflow-wrap:anywhere;vertical-align:top}.pairs th{width:38%;color:var(--muted)}",
    "details.card{margin-top:16px;padding-bottom:10px}.matrix{max-width:500px;margin:0 auto}"
    "summary{cursor:pointer;color:var(--muted);font-size:14px;margin-bottom:8px}"
    "summary:focus-visible{outline:2px solid var(--c1)}",
    ".verdict{border-left:4px solid var(--c1);font-size:16px;margin-bottom:16px}.verdict p{margin:0}"
    ".bar{height:26px;border-radius:5px;margin:2px 0 12px}.swatch{display:inline-block;width:11px;height:11px;"
    "border-radius:3px;margin-right:8px}",
    ".meter{display:inline-block;width:70px;height:8px;border-radius:4px;background:var(--grid);margin-right:8px;"
    "vertical-align:middle;overflow:hidden}.meter i{display:block;height:100%;background:var(--c1)}",
    ".right{fill:var(--c1)}.wrong{fill:var(--c2)}text.on{fill:var(--card)}text.off{fill:var(--text)}",
    ".names th:first-child,.names td:last-child{white-space:normal;overflow-wrap:anywhere;min-width:56px}"
    ".tall{max-height:540px;overflow-y:auto}.samples{display:grid;align-items:start;"
    "grid-template-columns:repeat(auto-fill,minmax(104px,1fr));gap:12px}.samples figure{background:var(--card);"
    "border:1px solid var(--line);border-radius:8px;margin:0;padding:8px;font-size:13px;line-height:1.35;min-width:0;"
    "overflow-wrap:anywhere}",
    ".samples img{display:block;width:100%;aspect-ratio:1;object-fit:contain;image-rendering:pixelated;"
    "background:#8884;border-radius:4px;margin-bottom:6px}.samples .miss{border-color:var(--bad)}"
    ".miss b{color:var(--bad)}",
    "footer{max-width:1240px;margin:30px auto 0;padding:14px 20px 30px;color:var(--muted);font-size:13px}"
    "@media(max-width:500px){main,header,footer{padding-left:12px;padding-right:12px}.card{padding:12px}"
    "h1{font-size:24px}th,td{padding:5px 6px}table{font-size:13px}thead th{white-space:normal}"
    ".meter{width:34px;margin-right:5px}.samples{grid-template-columns:repeat(3,1fr)}}",
    ".differs td,.differs th{background:var(--differs)}.across th:first-child{position:sticky;left:0;max-width:44vw;"
    "background:var(--card);white-space:normal}.across .differs th:first-child{background:var(--differs)}"
    ".across thead th{white-space:normal;overflow-wrap:anywhere;min-width:90px;vertical-align:bottom}",
    "@media print{body{background:#fff}.card{break-inside:avoid}}",
};

/* Zoom and hover of charts, and the age of a page of a running fit. Draws in the box that report_draw.c draws in. All
   numbers and names are read from attributes, so the text never contains any from a log. */
static const char *const script[] = {
    "'use strict';(function(){var L=46,R=388,T=10,B=190,kept={},live=document.getElementById('live'),",
    "key='mirrortrain '+location.pathname;",
    "if(live)try{kept=JSON.parse(sessionStorage.getItem(key))||{}}catch(e){}",
    "function keep(){if(live)try{sessionStorage.setItem(key,JSON.stringify(kept))}catch(e){}}",
    "function make(parent,name,at,text){var e=document.createElementNS(parent.namespaceURI,name);",
    "for(var k in at)e.setAttribute(k,at[k]);if(text)e.textContent=text;return parent.appendChild(e)}",
    "function tick(range){var p=Math.pow(10,Math.floor(Math.log10(range/4))),m=range/4/p;",
    "return(m<1.5?1:m<3.2?2:m<7?5:10)*p}",
    "function number(v){return String(+v.toPrecision(4))}",
    "function chart(svg,index){var f=svg.parentNode,d=svg.dataset,all=d.view.split(' ').map(Number),now=all,from=null,",
    "at=null,title=f.querySelector('h3').textContent,axes=svg.querySelector('.axes'),plot=svg.querySelector('.plot'),",
    "clip='clip'+index,keys=f.querySelectorAll('.key'),",
    "guide=make(svg,'path',{'class':'guide'}),pick=make(svg,'rect',{'class':'pick',y:T,height:B-T,width:0}),",
    "tip=make(f,'div',{'class':'tip',hidden:''}),reset=make(f,'button',{'class':'reset',type:'button',hidden:''},",
    "'Show all'),lines=[].map.call(plot.querySelectorAll('.line'),function(e){return{path:e,",
    "dots:e.nextElementSibling&&e.nextElementSibling.matches('.dots')?e.nextElementSibling:null,",
    "name:e.dataset.name,faint:e.matches('.faint'),points:e.dataset.d.split(' ').map(function(p){p=p.split(',');",
    "return[+p[0],p[1]?+p[1]:NaN]})}});",
    "make(make(svg,'clipPath',{id:clip}),'rect',{x:L-5,y:T-5,width:R-L+10,height:B-T+10});",
    "plot.setAttribute('clip-path','url(#'+clip+')');",
    "[].forEach.call(plot.querySelectorAll('title'),function(e){e.remove()});",
    "function X(v){return L+(R-L)*(v-now[0])/(now[1]-now[0])}",
    "function Y(v){return B-(B-T)*(v-now[2])/(now[3]-now[2])}",
    "function seen(p){return p[0]>=now[0]&&p[0]<=now[1]&&isFinite(p[1])}",
    "function words(v){return d.share?(100*v).toFixed(2)+'\u00a0%':number(v)}",
    "function draw(){var s=tick(now[3]-now[2]),i,v;axes.textContent='';",
    "for(i=Math.ceil(now[2]/s-1e-9);i*s<=now[3]+s*1e-9;i++){v=Y(i*s);",
    "make(axes,'path',{'class':'grid',d:'M'+L+' '+v.toFixed(1)+'H'+R});",
    "make(axes,'text',{'class':'tick','text-anchor':'end',x:L-7,y:(v+4).toFixed(1)},",
    "d.share?number(100*i*s)+'%':number(i*s))}",
    "s=tick(now[1]-now[0]);if(s<1&&now[1]-now[0]>=4)s=1;",
    "for(i=Math.ceil(now[0]/s-1e-9);i*s<=now[1]+s*1e-9;i++)",
    "make(axes,'text',{'class':'tick','text-anchor':'middle',x:X(i*s).toFixed(1),y:B+16},number(i*s));",
    "lines.forEach(function(l){var pen='M',path='',one;l.points.forEach(function(p){if(isFinite(p[1])){",
    "path+=pen+X(p[0]).toFixed(1)+' '+Y(p[1]).toFixed(1);pen='L'}else pen='M'});l.path.setAttribute('d',path);",
    "if(!l.dots)return;one=l.dots.firstElementChild;l.dots.textContent='';l.dots.appendChild(one);",
    "l.points.filter(seen).forEach(function(p,i){if(l.dots.dataset.all!=='1'&&p[0]!==Math.floor(p[0]))return;",
    "var e=i?l.dots.appendChild(one.cloneNode(true)):one;",
    "e.setAttribute('transform','translate('+X(p[0]).toFixed(1)+' '+Y(p[1]).toFixed(1)+')')})});",
    "reset.hidden=now===all}",
    "function hide(){tip.hidden=true;guide.removeAttribute('d')}",
    "function fit(a,b){var low=Infinity,high=-Infinity,room,s;a=Math.max(a,all[0]);b=Math.min(b,all[1]);hide();",
    "if(!(b-a>1e-4*(all[1]-all[0])))return;now=[a,b,0,1];lines.forEach(function(l){l.points.filter(seen).forEach(",
    "function(p){low=Math.min(low,p[1]);high=Math.max(high,p[1])})});",
    "if(a===all[0]&&b===all[1])now=all;else{if(low>high){low=all[2];high=all[3]}",
    "room=high-low||Math.abs(high)||1;s=tick(room);",
    "now[2]=s*Math.floor(low/s-1e-9);now[3]=s*Math.ceil(high/s+1e-9)}",
    "kept[title]=now===all?undefined:[a,b];keep();draw()}",
    "function show(x){var near=null,list=lines.filter(function(l){return!l.faint&&l.points.some(seen)});",
    "(list.length?list:lines).forEach(function(l){l.points.filter(seen).forEach(function(p){",
    "if(near===null||Math.abs(p[0]-x)<Math.abs(near-x))near=p[0]})});if(near===null)return hide();at=near;",
    "tip.textContent='';make(tip,'p',{},d.over+' '+number(near));",
    "lines.forEach(function(l,i){var best=null,row;l.points.filter(seen).forEach(function(p){",
    "if(!best||Math.abs(p[0]-near)<Math.abs(best[0]-near))best=p});",
    "if(!best||Math.abs(best[0]-near)>0.02*(now[1]-now[0]))return;",
    "row=make(tip,'p',{});row.appendChild(keys[i].cloneNode(true));",
    "row.appendChild(document.createTextNode(l.name+' '));make(row,'b',{},words(best[1]))});",
    "var r=svg.getBoundingClientRect(),o=f.getBoundingClientRect(),px=r.left-o.left+X(near)*r.width/400;",
    "guide.setAttribute('d','M'+X(near).toFixed(1)+' '+T+'V'+B);tip.hidden=false;tip.style.left='0';",
    "tip.style.left=Math.max(4,px+14+tip.offsetWidth>o.width?px-14-tip.offsetWidth:px+14)+'px'}",
    "function where(e){var r=svg.getBoundingClientRect(),x=(e.clientX-r.left)*400/r.width;",
    "return Math.max(L,Math.min(R,x))}",
    "function value(x){return now[0]+(x-L)/(R-L)*(now[1]-now[0])}",
    "function let_go(){from=null;pick.setAttribute('width',0)}",
    "svg.setAttribute('tabindex','0');",
    "svg.addEventListener('pointerdown',function(e){if(e.button)return;from=where(e);",
    "svg.setPointerCapture(e.pointerId)});",
    "svg.addEventListener('pointermove',function(e){var x=where(e);if(from===null)return show(value(x));hide();",
    "pick.setAttribute('x',Math.min(x,from));pick.setAttribute('width',Math.abs(x-from))});",
    "svg.addEventListener('pointerup',function(e){var x=where(e),a=from;let_go();if(a===null)return;",
    "if(Math.abs(x-a)>8)fit(value(Math.min(x,a)),value(Math.max(x,a)));else show(value(x))});",
    "svg.addEventListener('pointercancel',let_go);svg.addEventListener('pointerleave',hide);",
    "svg.addEventListener('blur',hide);",
    "svg.addEventListener('dblclick',function(){fit(all[0],all[1])});",
    "reset.addEventListener('click',function(){fit(all[0],all[1]);svg.focus({preventScroll:true})});",
    "svg.addEventListener('keydown',function(e){var w=now[1]-now[0],c=at===null?now[0]+w/2:at,x=null;",
    "if(e.key==='Escape'||e.key==='0')fit(all[0],all[1]);",
    "else if(e.key==='+')fit(c-w/4,c+w/4);else if(e.key==='-')fit(c-w,c+w);",
    "else if(e.key==='ArrowRight'||e.key==='ArrowLeft'){lines.forEach(function(l){l.points.filter(seen).forEach(",
    "function(p){if(at===null||(e.key==='ArrowRight'?p[0]>at&&(x===null||p[0]<x):p[0]<at&&(x===null||p[0]>x)))",
    "if(!l.faint)x=p[0]})});if(x!==null)show(x)}else return;e.preventDefault()});",
    "if(kept[title])fit(kept[title][0],kept[title][1])}",
    "[].forEach.call(document.querySelectorAll('.chart svg[data-view]'),chart);",
    "if(live){var pill=document.getElementById('state'),stale=document.getElementById('stale'),",
    "every=+live.dataset.every,made=+live.dataset.at;",
    "var age=function(){var s=Math.max(0,Math.round(Date.now()/1000-made)),late=s>3*every;",
    "live.textContent='last update '+(s<120?s+'\u00a0s':s<7200?Math.round(s/60)+'\u00a0min':",
    "Math.round(s/3600)+'\u00a0h')+' ago';",
    "pill.textContent=late?'stopped?':'running';pill.className=late?'pill bad':'pill good';stale.hidden=!late};",
    "age();setInterval(age,1000);",
    "[].forEach.call(document.querySelectorAll('details'),function(e,i){if(kept['#'+i]!==undefined)e.open=kept['#'+i];",
    "e.addEventListener('toggle',function(){kept['#'+i]=e.open;keep()})});",
    "addEventListener('pagehide',function(){kept.y=scrollY;keep()});if(kept.y)scrollTo(0,kept.y)}})();",
};
/* Of the text above; browsers run nothing else on the page. tests/test_report.py compares them. */
static const char script_hash[] = "OWabuuFZ0j7GroPlqs5TNduqWH0ABTU/4ZtUn2eYjHw=";

void begin_page(page *p, const char *title, const char *kind, const live_page *live) {
    add(p, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
           "<meta name=\"color-scheme\" content=\"light dark\">"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';img-src data:;"
           "style-src 'unsafe-inline';script-src 'sha256-%s'\">", script_hash);
    if (live) add(p, "<meta http-equiv=\"refresh\" content=\"%.0f\">", live->every);
    add(p, "<link rel=\"icon\" href=\"data:,\"><title>");
    add_start(p, title, MOST_TITLE);
    add(p, " \xc2\xb7 %s</title><style>", kind);
    for (size_t i = 0; i < sizeof style / sizeof style[0]; i++) add(p, "%s", style[i]);
    for (int i = 0; i < 10; i++) add(p, ".p%d{fill:var(--p%d)}", i, i);
    add(p, "</style></head>\n<body>");
}

void end_page(page *p, const char *from) {
    add(p, "</main>\n<footer>Made by mirrortrain " MIRT_VERSION_STRING " from %s. Nothing on this page is "
           "loaded from elsewhere.</footer><script>", from);
    for (size_t i = 0; i < sizeof script / sizeof script[0]; i++) add(p, "%s", script[i]);
    add(p, "</script></body></html>\n");
}

bool write_page(page *p, const char *path) {
    bool good = !p->failed;
    if (!good) complain("%s: out of memory", path);
    if (good && mirt_write_file(path, p->data, p->size) != MIRT_OK) {
        complain_of_library();
        good = false;
    }
    free(p->data);
    memset(p, 0, sizeof *p);
    return good;
}
