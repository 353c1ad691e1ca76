"""Groups of English words that mean much the same in a query and in a description."""

from typing import Final

# One group a line, the word that names it first.
# What is done.
_ACTIONS: Final = """
create make new add generate build compose produce set up
generate produce synthesize render draw
delete remove erase drop discard destroy purge clear eliminate
update edit modify change alter adjust revise amend rewrite
get retrieve fetch obtain read load access return
show display view present see list
list enumerate browse all available catalog
find search locate discover lookup seek query look
send deliver transmit dispatch forward post
save store persist keep remember record write
open launch start begin run
run execute start launch invoke trigger perform
stop end halt terminate kill cancel abort shut
pause suspend hold
resume continue restart
cancel revoke abort withdraw
rename retitle relabel move
move relocate transfer shift migrate
copy duplicate clone replicate
merge combine join unite consolidate blend concatenate
split divide separate cut partition segment
compare contrast difference diff versus distinguish
check verify validate confirm test inspect examine
verify authenticate validate certify
calculate compute work figure determine evaluate
estimate approximate predict guess forecast project
predict forecast anticipate outlook future
analyze analyse examine inspect assess evaluate study investigate
summarize summary condense brief digest abstract overview recap
explain describe clarify elaborate interpret meaning
translate translation language convert interpret
convert transform change turn translate export
extract pull parse scrape harvest gather
parse decode read interpret
encode encrypt encipher
decode decrypt decipher
compress zip shrink pack archive
decompress unzip extract unpack
upload import ingest load put
download export fetch save get
share publish distribute post invite
publish release post deploy issue
deploy release publish rollout host
install setup add deploy
configure setup set adjust customize setting preference option
connect link attach join bind
disconnect unlink detach
subscribe follow enroll register sign
unsubscribe unfollow leave
register enroll sign signup join
login signin authenticate log
buy purchase order acquire shop checkout
sell trade list market
pay payment charge transaction settle
refund reimburse return
book reserve reservation schedule appointment
schedule plan arrange calendar agenda timetable
remind reminder alert notify alarm
notify alert inform notification warn
recommend suggest suggestion advise propose recommendation
advise advice guidance guide tip consult counsel
learn study teach education tutor course lesson
teach tutor instruct educate train
practice exercise drill rehearse train
improve enhance optimize boost refine upgrade better
fix repair correct mend resolve debug patch
solve resolve answer work
answer respond reply response
ask question query inquire inquiry
comment remark reply feedback
review rating critique feedback opinion
rate rating score rank grade
rank sort order top best leader
sort order arrange
filter narrow restrict refine
count number total quantity amount many
measure gauge meter quantify
track monitor follow trace watch observe
monitor watch observe supervise surveil
watch view stream
listen hear play
play stream start
write compose draft author
draw sketch paint illustrate
design create layout plan
visualize chart plot graph diagram draw
click press tap push
type enter input fill
fill complete populate
submit send file
approve accept allow permit authorize grant
reject deny refuse decline
block ban forbid deny
allow enable permit grant
enable activate on
disable deactivate off
lock secure protect
protect secure guard defend safety
assign allocate delegate appoint
manage administer control handle organize
organize arrange sort structure tidy group
group cluster category collect
classify categorize label identify detect
detect identify recognize spot find
identify recognize determine
navigate go visit browse travel route
visit go tour travel
travel trip journey tour vacation holiday tourism itinerary
explore discover browse
crawl scrape spider extract
tag label mark annotate
highlight mark emphasize
undo revert rollback restore
restore recover revert backup
backup snapshot archive save
commit save record
replace substitute swap
append add attach
insert add put
attach add append
rotate turn spin
resize scale shrink enlarge
crop trim cut
trim cut shorten
shorten abbreviate condense
expand extend enlarge grow
reduce decrease lower shrink minimize
increase raise boost grow maximize
simulate model emulate
simplify reduce
express state
"""

# What it is done with.
_THINGS: Final = """
email mail message inbox gmail letter
message text chat sms conversation
chat conversation talk converse dialogue
call phone telephone dial ring
phone mobile telephone cellphone smartphone
contact person people
person people human individual
user account member profile customer
customer client buyer consumer
employee staff worker personnel hr
company business organization firm corporation enterprise
team group
friend buddy
child kid children
parent mother father family
baby infant newborn
man male
woman female
doctor physician medical
patient medical health
health medical wellness fitness
medicine drug medication pharmaceutical
disease illness condition disorder symptom diagnosis
diet nutrition food calorie meal
food meal dish cuisine eat dining
recipe cook cooking ingredient dish meal
restaurant dining eat cafe
drink beverage cocktail wine beer
grocery supermarket food
exercise workout fitness gym training
sleep rest
weather forecast temperature climate rain snow wind humidity sunny meteorology
temperature heat cold warm hot degree celsius fahrenheit
storm hurricane tornado
earthquake seismic quake
location place position where coordinate geolocation
place location spot venue
address location street
map location geographic navigation
route direction path way navigation
distance far length mile kilometer
near nearby close around proximity
city town municipality
country nation
state province region
region area zone territory
language tongue linguistic
flight airline airport plane aircraft fly aviation
plane aircraft airplane
train railway rail station
bus transit transport
transport transportation transit
car vehicle automobile auto
truck lorry vehicle
taxi cab ride uber
bike bicycle cycle
ship boat vessel
parcel package shipment delivery shipping
shipping delivery shipment
hotel accommodation lodging stay inn hostel
apartment flat rental
rent rental lease
house home property estate
property estate
ticket pass
event happening occasion concert
concert gig show event
meeting appointment conference call
date day time
time hour clock
today now current present
current now present latest live
latest newest recent new last
recent latest new
history past historical previous
past previous earlier history
upcoming future next scheduled
tomorrow next
year annual yearly
month monthly
week weekly
day daily
holiday vacation
birthday birth
age old
price cost fee rate charge pricing
cost expense price fee
cheap inexpensive affordable low discount deal
discount coupon deal promo offer sale voucher
product item goods merchandise
shop store retail shopping
store shop
cart basket checkout
order purchase
invoice bill receipt
bill invoice
tax vat
salary wage pay income compensation
income earnings revenue salary
revenue sales income
profit gain earnings
money cash currency fund finance
currency exchange dollar euro forex
exchange rate currency
bank banking financial
loan mortgage credit debt borrow
mortgage loan
interest rate
insurance coverage policy
invest investment investor portfolio
stock share equity ticker
market exchange
crypto cryptocurrency bitcoin ethereum blockchain coin token
wallet balance
balance amount
budget spending expense
account profile
card credit
job career employment vacancy position
career job profession
resume cv
hire recruit
candidate applicant
skill ability
school education university college
student pupil learner
course class lesson
exam test quiz
quiz trivia question
homework assignment
math mathematics arithmetic
equation formula
statistics stats statistical
average mean
sum total add
probability chance likelihood odds
area surface
volume capacity
weight mass
height tall
size dimension
speed velocity fast
energy power electricity
power electricity
fuel gas petrol gasoline
file document
document file doc paper
folder directory
directory folder
path location
disk drive storage
pdf document
text content string
content text body
word term
sentence phrase
paragraph section
article post story
story tale fiction narrative
book novel publication literature
author writer
poem poetry
quote saying quotation
joke humor funny
paper research publication article study
research study scholarly academic scientific
science scientific
news headline article press
blog post article
page webpage website
website site webpage web page url
web internet online
internet web online
url link address website
link url
browser chrome web
screenshot capture image
image picture photo photograph
photo picture image photograph
picture image photo
video clip movie youtube
movie film cinema
film movie
show series episode
tv television
actor actress cast
music song track audio
song music track
audio sound voice
voice speech
speech voice talk spoken
lyrics song words
artist singer musician band
album record
podcast episode
playlist mix
art artwork painting
icon logo
logo brand
color colour
font typeface
game gaming play
player gamer athlete
sport sports athletic
football soccer
team club
match game fixture
score result
league tournament competition
tournament competition championship
bet betting odds gamble
race racing
horoscope zodiac astrology
dream sleep
tarot fortune
gift present
fashion style clothing clothes outfit wear
clothing clothes apparel garment
beauty makeup cosmetic skincare
pet animal dog cat
animal creature species wildlife
plant garden flower
garden plant
farm agriculture crop
dating relationship romance love
wedding marriage
law legal regulation
legal law lawyer attorney
court judge judicial
crime criminal police
government official public
election vote political
politics political
tweet twitter post
social media
hashtag tag
follower subscriber
channel stream
comment reply
code program source programming
program software application
software application program
app application
developer programmer engineer
function method procedure
bug error issue defect
error failure exception fault
issue ticket bug problem
problem issue trouble
repository repo git github codebase
branch version
version release
commit change revision
test testing
server host machine
container docker
cluster kubernetes
cloud aws azure
vm virtual machine
database db sql
table sheet
sql query database
row record entry
record entry
column field
field attribute
key identifier
id identifier
schema structure
spreadsheet excel sheet workbook
sheet spreadsheet
slide presentation powerpoint deck
presentation slide deck
chart graph plot diagram
graph chart network
diagram chart flowchart
note memo
memory knowledge
knowledge fact information
fact trivia
information detail info
info information detail
detail information
metadata property
data dataset
dataset data
report summary
log record
log history
status state condition
state status
setting configuration option
config configuration setting
permission access role
role permission
password credential secret
secret credential
security secure safety
vulnerability security weakness exploit cve
threat attack malware
malware virus
certificate ssl
domain dns website
ip address
network connection
device hardware
camera photo
light lamp bulb
sensor measurement
task todo
todo task
project task work
deadline due
goal objective target
plan strategy
workflow process
template pattern
sample example
example sample
list collection
collection set
category type kind
type kind category
topic subject theme
keyword term
name title
title name
description detail
definition meaning dictionary
dictionary definition word
synonym thesaurus word
grammar spelling proofread
spelling grammar
essay writing
idea brainstorm inspiration
question query
feature capability
model ai
prompt instruction
summary overview
trend trending popular
popular trending top famous
best top
random arbitrary
similar alike related resemble
related similar
different distinct
large big huge
small little tiny
quick fast
free gratis
nutrition calorie
blood medical
gene genetic dna genome
protein molecule
molecule chemical compound
chemical chemistry
physics physical
star astronomy planet
space astronomy nasa
planet astronomy
sun solar
moon lunar
satellite orbit
water ocean
air quality pollution
pollution emission
carbon emission
"""

SYNONYM_GROUPS: Final = tuple(
    tuple(line.split()) for part in (_ACTIONS, _THINGS) for line in part.splitlines() if line
)
